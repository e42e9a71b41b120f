"""What a name is: kind, collective, library, and the rule that said so.

Classification is data. ``rules.toml`` beside this file holds ordered rules, the first that matches decides,
and a user's own file goes before it. A kernel that no rule knows counts as plain compute, shown as unknown.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from .errors import RulesError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

__all__ = ["Classifier", "Collective", "Kind", "Rule", "Verdict"]

LONGEST = 4096
"""Characters of a name that rules see; the longest of any trace known to us has 1,956. Some patterns take time with
the square of the length: 15 s for a name of 100,000."""

HANDOVER = "host-handover"
"""Id of a rule."""

Scope = Literal["kernel", "host", "annotation"]
Search = Callable[[str], object]


class Kind(str, Enum):
    """What an op does; the order is that of tables and legends."""

    GEMM = "gemm"
    ATTENTION = "attention"
    COMPUTE = "compute"
    COMM = "comm"
    MEMORY = "memory"

    def __str__(self) -> str:
        return self.value


class Collective(str, Enum):
    """What a communication op does."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    ALL_TO_ALL = "all_to_all"
    SEND_RECV = "send_recv"
    BARRIER = "barrier"
    OTHER = "other"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rules make of a name.

    Attributes
    ----------
    kind : Kind or None
        None only for a host name that is not an op: a dispatch, a view, an allocation, a wrapper, a marker.
    collective : Collective or None
        Set where ``kind`` is ``COMM``, and only there.
    library : str or None
        Whose kernel it is, where the rule knows.
    fused_comm : bool
        A GEMM that communicates too (Flux, CUTLASS Distributed GEMM): that part cannot be seen from outside.
    rule : str or None
        Id of the rule that decided; None where no rule knew the name.
    """

    kind: Kind | None
    collective: Collective | None = None
    library: str | None = None
    fused_comm: bool = False
    rule: str | None = None

    @property
    def hands_over(self) -> bool:
        """Whether an operator around this one only waits, or computes by others that are recorded inside it."""
        return self.rule == HANDOVER


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a rules file; the head of ``rules.toml`` says what each key means.

    ``collective`` is ``"named"`` where the annotation rules are to read it from the name.
    """

    id: str
    pattern: str
    kind: Kind | None
    scope: Scope = "kernel"
    collective: Collective | Literal["named"] | None = None
    library: str | None = None
    fused_comm: bool = False
    why: str | None = None


class Classifier:
    """Ordered rules, ready to be asked.

    It remembers no name: callers ask once for each distinct one.
    """

    def __init__(self, rules: Sequence[Rule], own: int = 0) -> None:
        self.rules = tuple(rules)
        self.own = self.rules[:own]  # those of a user's file
        self._tables: dict[Scope, _Table] = {}

    @classmethod
    def default(cls) -> Classifier:
        """Our rules alone."""
        return _default()

    @classmethod
    def with_rules(cls, path: Path) -> Classifier:
        """The rules of a user's file, then ours.

        Raises
        ------
        RulesError
            The file cannot be read, is not TOML, or holds a rule that makes no sense.
        """
        own = _read(path)
        return cls((*own, *_default().rules), len(own))

    @classmethod
    def of(cls, path: Path | None) -> Classifier:
        """With the rules of a user's file, where one is given. Raises RulesError."""
        return cls.default() if path is None else cls.with_rules(path)

    def kernel(self, demangled: str, short: str | None = None) -> Verdict:
        """What a device activity is.

        Parameters
        ----------
        demangled : str
            Full name; of a copy the one readers give it, such as ``Memcpy PtoP`` or ``Memset``.
        short : str, optional
            The name without namespaces and arguments, where the trace has one. Each rule is tried on both
            names before the next rule is.
        """
        names = (demangled,) if short is None or short == demangled else (demangled, short)
        return self._first("kernel", *names) or Verdict(Kind.COMPUTE)

    def host(self, operator: str) -> Verdict:
        """What a CPU operator or a profiler annotation of a run without a GPU is.

        An operator (``namespace::name``) that no rule knows is compute; any other name is no op.
        """
        unknown = Kind.COMPUTE if re.fullmatch(r"\w+::\w+(?:\.\w+)?", operator) else None
        return self._first("host", operator) or Verdict(unknown)

    def annotation(self, name: str) -> Collective | None:
        """The collective an annotation, a "Collective name" argument or a c10d operator names, if any."""
        verdict = self._first("annotation", name)
        return None if verdict is None else verdict.collective

    def _first(self, scope: Scope, *names: str) -> Verdict | None:
        """The verdict of the scope's first rule that matches one of the names."""
        if scope not in self._tables:  # compiled when first asked for: a GPU trace needs no host rules
            self._tables[scope] = _Table(rule for rule in self.rules if rule.scope == scope)
        names = tuple(name[:LONGEST] for name in names)
        for rule, search in self._tables[scope].candidates(*names):
            for name in names:
                if search(name):
                    return self._verdict(rule, name)
        return None

    def _verdict(self, rule: Rule, name: str) -> Verdict:
        collective = rule.collective
        if collective == "named":
            collective = self.annotation(name) or Collective.OTHER
        return Verdict(rule.kind, collective, rule.library, rule.fused_comm, rule.id)


class _Table:
    """Compiled rules, found by words of which a name must hold one for the rule to match.

    Looking for a word takes 0.1 us where a search through a long name takes 5 to 30: 20 000 names of 300
    characters take 0.7 s instead of 6.5.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = [(rule, re.compile(rule.pattern).search) for rule in rules]
        self.positions: dict[str, list[int]] = {}
        for position, (rule, _) in enumerate(self.rules):
            for word in _words(rule.pattern):
                self.positions.setdefault(word, []).append(position)

    def candidates(self, *names: str) -> Iterator[tuple[Rule, Search]]:
        """The rules that may match, in order."""
        folded = "\n".join(names).lower()
        found = {i for word, positions in self.positions.items() if word in folded for i in positions}
        return (self.rules[position] for position in sorted(found))


_ESCAPE = r"\\(?:x..|u.{4}|U.{8}|N\{[^}]*\}|\d{1,3}|.)"
_CLASS = r"\[\^?\]?(?:\\.|[^\]\\])*\]"
_GROUP = r"\([^()]*\)"
_OPTIONAL = r".(?:[?*]|\{[^}]*\})"


def _words(pattern: str) -> tuple[str, ...]:
    """Literal words, one of which every match of the pattern holds when both are in lower case.

    Only plain text outside groups counts. An alternative without any gives the empty word, which every name
    holds.
    """
    if re.search(r"\(\?[a-z]*x", pattern):  # verbose: spaces and comments are no text
        return ("",)
    plain = re.sub(f"{_ESCAPE}|{_CLASS}", "\0", pattern)
    while (outer := re.sub(_GROUP, "\0", plain)) != plain:
        plain = outer
    plain = re.sub(_OPTIONAL, "\0", plain, flags=re.DOTALL)
    runs = (re.findall(r"[\w: ]+", alternative) for alternative in plain.split("|"))
    words = {max(found, key=len, default="").lower() for found in runs}
    return ("",) if "" in words else tuple(sorted(words))


_KEYS = ("id", "scope", "pattern", "kind", "collective", "library", "fused_comm", "why")
_KINDS: dict[str, tuple[str, ...]] = {
    "kernel": tuple(Kind),
    "host": (*Kind, "none"),
    "annotation": (Kind.COMM,),
}
_COLLECTIVES: dict[str, tuple[str, ...]] = {
    "kernel": tuple(Collective),
    "host": (*Collective, "named"),
    "annotation": tuple(Collective),
}


@cache
def _default() -> Classifier:
    return Classifier(_read(Path(__file__).with_name("rules.toml")))


def _read(path: Path) -> tuple[Rule, ...]:
    """The rules of a file, each checked."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would be waited for
        raise RulesError("is no regular file", "name a TOML file of rules", path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RulesError(f"cannot be read ({error.strerror})", "name a TOML file of rules", path) from error
    except RecursionError as error:
        raise RulesError("is nested too deeply", "keep only [[rule]] tables", path) from error
    except ValueError as error:  # not UTF-8, not TOML
        raise RulesError(f"is not TOML: {error}", "mend it there", path) from error
    entries = document.pop("rule", None)
    if document:
        raise RulesError(f'has an unknown key "{next(iter(document))}"', "keep only [[rule]] tables", path)
    if not (entries and isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)):
        raise RulesError("holds no [[rule]] table", "write each rule under a line [[rule]]", path)
    rules: dict[str, Rule] = {}
    for number, entry in enumerate(entries, 1):
        rule = _Entry(path, number, entry).rule()
        if rule.id in rules:
            raise RulesError(f'rule {number} repeats the id "{rule.id}"', "give it its own", path)
        rules[rule.id] = rule
    return tuple(rules.values())


class _Entry:
    """One ``[[rule]]`` table on its way to a rule; what is wrong with it is said with its number and id."""

    def __init__(self, path: Path, number: int, table: Mapping[str, Any]) -> None:
        self.path = path
        self.number = number
        self.table = table

    def rule(self) -> Rule:
        self._check_keys()
        table = self.table
        scope = self._one_of("scope", table.get("scope", "kernel"), tuple(_KINDS))
        kind = self._one_of("kind", table["kind"], _KINDS[scope])
        collective = table.get("collective")
        if collective is not None:
            self._one_of("collective", collective, _COLLECTIVES[scope])
        if kind == "comm" and collective is None:
            self._refuse("has kind comm and no collective", 'add one, "other" where it is not known')
        if kind != "comm" and collective is not None:
            self._refuse("has a collective without kind comm", 'remove it, or write kind = "comm"')
        fused_comm = table.get("fused_comm", False)
        if fused_comm and kind != "gemm":
            self._refuse("has fused_comm without kind gemm", 'remove it, or write kind = "gemm"')
        return Rule(
            id=table["id"],
            pattern=self._pattern(),
            kind=None if kind == "none" else Kind(kind),
            scope=cast(Scope, scope),
            collective=collective if collective in (None, "named") else Collective(collective),
            library=table.get("library"),
            fused_comm=fused_comm,
            why=table.get("why"),
        )

    def _check_keys(self) -> None:
        for key, value in self.table.items():
            if key not in _KEYS:
                self._refuse(f'has an unknown key "{key}"', f"the keys are {', '.join(_KEYS)}")
            wanted, words = (bool, "true or false") if key == "fused_comm" else (str, "text in quotes")
            if not isinstance(value, wanted):
                self._refuse(f"has {key} = {value!r}", f"{key} is {words}")
        for key in ("id", "pattern", "kind"):
            if not self.table.get(key):
                self._refuse(f"has no {key}", "every rule has an id, a pattern and a kind")

    def _one_of(self, key: str, value: str, allowed: Sequence[str]) -> str:
        if value not in allowed:
            self._refuse(f'has an unknown {key} "{value}"', f"use {', '.join(allowed)}")
        return value

    def _pattern(self) -> str:
        pattern: str = self.table["pattern"]
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            self._refuse(f"has a bad pattern: {error}", "mend the regular expression")
        return pattern

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        name = self.table.get("id")
        where = f'rule {self.number} ("{name}")' if isinstance(name, str) and name else f"rule {self.number}"
        raise RulesError(f"{where} {what}", remedy, self.path)
