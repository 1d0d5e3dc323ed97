from green_core.clock import SteadyClock


class Sources:
    def __init__(self):
        self.wall, self.steady = 1_000_000.0, 50.0

    def pass_time(self, seconds):
        self.wall += seconds
        self.steady += seconds

    def clock(self):
        return SteadyClock(lambda: self.wall, lambda: self.steady)


def test_a_wall_clock_that_jumps_back_an_hour_is_not_followed():
    sources = Sources()
    clock = sources.clock()
    sources.pass_time(10)
    sources.wall -= 3600
    before = clock.now()
    sources.pass_time(5)
    assert before == 1_000_010.0
    assert clock.now() == 1_000_015.0


def test_a_lasting_step_is_adopted_when_nothing_is_timed():
    sources = Sources()
    clock = sources.clock()
    sources.wall -= 3600
    assert clock.adopt() == -3600
    assert clock.now() == sources.wall


def test_drift_below_the_tolerance_is_left_alone():
    sources = Sources()
    clock = sources.clock()
    sources.wall += 1.5
    assert clock.adopt() == 0.0
    assert clock.now() == 1_000_000.0
