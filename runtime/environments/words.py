"""The words of the built-in environments: every word is one token of the tiny model's tokenizer."""

from __future__ import annotations

PAD, BOS, EOS, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"
USER, ASSISTANT = "<user>", "<assistant>"
CALL, RESULT, ANSWER = "<call>", "<result>", "<answer>"
SPECIAL = (PAD, BOS, EOS, UNKNOWN, USER, ASSISTANT, CALL, RESULT, ANSWER)
DIGITS = tuple(str(digit) for digit in range(10))
KEYS = tuple(f"k{index}" for index in range(16))
OPERATORS = ("get", "hop", "copy", "sum", "+", "-", "=", "mod")
LETTERS = tuple("abcdefghijklmnopqrstu")
VOCABULARY = SPECIAL + DIGITS + KEYS + OPERATORS + LETTERS
