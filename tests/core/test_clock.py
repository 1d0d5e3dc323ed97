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
