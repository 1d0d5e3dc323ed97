"""Whether an answer is inside a reasoning block, told from its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_MARKERS = ("<think>", "</think>")


class Thinking:
    """Asks the engine's reasoning parser; without one, looks for the usual pair of tokens.

    ``structured`` is vLLM's ``StructuredOutputManager``, which knows parser and tokenizer.
    """

    def __init__(self, structured: Any) -> None:
        self._parser: Any = None
        self._start: int | None = None
        self._end: int | None = None
        tokenizer = getattr(structured, "tokenizer", None)  # there is none with skip_tokenizer_init
        if structured.reasoner_cls is not None:
            self._parser = structured.reasoner_cls(tokenizer=tokenizer)
            self._start = getattr(self._parser, "start_token_id", None)
        elif tokenizer is not None:
            vocabulary = tokenizer.get_vocab()
            self._start, self._end = (vocabulary.get(marker) for marker in _MARKERS)

    def at_start(self, prompt: Sequence[int]) -> bool:
        """Whether the answer begins inside a block: a parser says so until it has seen its end."""
        if self._parser is not None:
            return not self._parser.is_reasoning_end(prompt)
        return self._opened_last(prompt)

    def opens(self, fresh: Sequence[int]) -> bool:
        """Whether a block begins in ``fresh``, be it closed again in there or not."""
        return self._start is not None and self._start in fresh

    def after(self, inside: bool, output: Sequence[int], fresh: Sequence[int]) -> bool:
        """Whether it is inside one after ``fresh``, the newest tokens of ``output``."""
        if not (inside or self.opens(fresh)):
            return False
        if self._parser is not None:
            return not self._parser.is_reasoning_end_streaming(output, fresh)
        if self._start in fresh:
            return self._opened_last(fresh)
        return self._end not in fresh

    def _opened_last(self, tokens: Sequence[int]) -> bool:
        if self._start is None:
            return False
        for token in reversed(tokens):
            if token in (self._start, self._end):
                return bool(token == self._start)
        return False
