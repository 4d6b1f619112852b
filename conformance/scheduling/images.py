"""The encoder's outputs that a model runner keeps, and what steps need of them, by plans alone.

- A step that computes tokens of an image reads the encoder's output of it; so do draft layers as
  far behind the step as they look ahead: their entry of a token depends on the next one, and that
  of each further MTP module on one token more. The step encodes the image, or an earlier step has,
  and it has not been freed since: a step frees first, then encodes.
- A reset has the model runner forget all of them: steps after it encode again what they read.
- A step encodes at most its budget, what is kept is at most the size of the cache, and what is
  kept is not encoded again. It is held, and kept, for a request that has computed a part of the
  image, and held for none that does not run, since what is held makes no room for others. What
  has been held by none for longest makes room first.
- Where images are computed whole, the step that computes the first token computes the last one.
- A chunk may end before an image that is not there, and that neither budget nor cache has room for,
  or which does not fit into the step as a whole. Draft layers may have it end as much earlier as
  they look ahead.

vLLM: ``EncoderCacheManager``, and ``encoder_cache`` of ``GPUModelRunner``.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.schema import EngineConfiguration, Image
from hitproof.conformance.histories.workloads import Arrival, Deployment
from hitproof.conformance.scheduling.runner import SCHEDULER, exceeds, violation
from hitproof.conformance.subject.schedulers import Plan, Scheduled
from hitproof.spec.claims import Divergence


class EncoderOutputs:
    """Follows the plans of one scheduler; ``batches`` steps are in flight at most."""

    def __init__(
        self,
        deployment: Deployment,
        engine: EngineConfiguration,
        arrivals: Mapping[str, Arrival],
        batches: int,
    ) -> None:
        self._encoder = deployment.encoder
        self._arrivals = arrivals
        self._in_turn = batches == 1
        self._ahead = max(engine.num_prefill_lookahead, 0)
        self._kept: dict[str, int] = {}
        self._freed: set[str] = set()
        self._lost: set[str] = set()
        self._passed: dict[str, int] = {}
        self._begun: dict[str, set[str]] = {}
        self._unheld: dict[str, tuple[int, int]] = {}
        """Since which step each kept output is held by none, at the earliest and at the latest."""
        self._step = 0
        self._in_sessions = {name for name, each in arrivals.items() if each.session is not None}
        inputs: dict[str, list[str]] = {}
        for name, each in arrivals.items():
            if each.session is not None:
                inputs.setdefault(each.session, []).append(name)
        self._before = {now: one for each in inputs.values() for one, now in pairwise(each)}
        self._sizes = {
            image.identifier: image.length for each in arrivals.values() for image in each.images
        }

    def judge(self, plan: Plan) -> Iterator[Violation]:
        """What is wrong with a step. Remembers what it frees and encodes."""
        if self._encoder is None:
            return
        self.forget(plan.finished)
        for identifier in plan.freed:
            if self._kept.pop(identifier, None):
                self._freed.add(identifier)
        yield from self._begun_again(plan)
        cost = 0
        for identifier in self._encoded(plan.encoded):
            size = self._sizes[identifier]
            if identifier in self._kept:
                yield violation(
                    Defect(Code.IMAGE_ENCODED_AGAIN),
                    f"image {identifier} is not encoded, as its output is kept",
                    "it is encoded again",
                )
            cost += size
            self._kept[identifier] = size
            self._lost.discard(identifier)
        if cost > self._encoder.budget:
            yield exceeds(
                "encoder",
                f"a step encodes at most {self._encoder.budget} tokens",
                f"it encodes {cost}",
            )
        if (kept := sum(self._kept.values())) > self._encoder.cache_size:
            yield exceeds(
                "encoder-cache",
                f"outputs of {self._encoder.cache_size} tokens are kept at most",
                f"those of {kept} are",
            )
        for place, each in enumerate(plan.scheduled):
            yield from self._read(each, plan, plan.scheduled[:place])

    def due(self, before: Sequence[Scheduled], plan: Plan, name: str, start: int, due: int) -> int:
        """How many of the ``due`` tokens that a request must get its images allow, in any case.

        ``before`` are the requests that come before it in the step. A chunk may end before an image
        that is not there, or earlier by what draft layers look ahead.
        """
        if self._encoder is None:
            return due
        for image in self._arrivals[name].images:
            first, last = image.offset - self._ahead, image.offset + image.length
            if last <= start or first > start + due:
                continue
            cut = self._encoder.whole_images and start <= image.offset and start + due < last
            if cut or self._lacks_room(image, before, plan, name):
                return min(due, max(0, first - start))
        return due

    def may_wait(self, name: str, plan: Plan, left: int) -> bool:
        """Whether a request may wait for an image, with ``left`` tokens left in the step."""
        if self._encoder is None:
            return False
        images = self._arrivals[name].images
        cut = self._encoder.whole_images and any(
            left < self._ahead + each.length for each in images
        )
        return cut or any(self._lacks_room(each, plan.scheduled, plan, name) for each in images)

    def whole(self, name: str, start: int) -> int:
        """The tokens from ``start`` on that only one step can compute, for the images there."""
        if self._encoder is None or not self._encoder.whole_images:
            return 0
        ends = (
            image.offset + image.length - start
            for image in self._arrivals[name].images
            if image.offset <= start + self._ahead
        )
        return max(ends, default=0)

    def computed(self, plan: Plan) -> None:
        """Note how far requests are."""
        self.forget(self._before[e.request] for e in plan.scheduled if e.request in self._before)
        for each in plan.scheduled:
            self._passed[each.request] = end = each.start + each.num_tokens
            self._begun[each.request] = {
                image.identifier
                for image in self._arrivals[each.request].images
                if image.offset < end < image.offset + image.length
            }

    def reset(self) -> None:
        """The model runner forgets all outputs."""
        self._lost.update(self._kept)
        self._kept.clear()
        self._begun.clear()

    def forget(self, names: Iterable[str]) -> None:
        """The requests hold no images any more: they have ended, or start again."""
        for name in names:
            self._passed.pop(name, None)
            self._begun.pop(name, None)

    def held(
        self,
        before: Mapping[str, Collection[str]],
        after: Mapping[str, Collection[str]],
        running: Sequence[str],
        waited: Iterable[str],
    ) -> Iterator[Violation]:
        """Judge which requests hold outputs, before a step and ``after`` its plan; see `judge`.

        Requests that ``waited`` before it may have held an output for a moment.
        """
        for name, images in self._begun.items():
            for image in images:
                if name not in before.get(image, ()) and name not in self._in_sessions:
                    yield violation(
                        Defect.of(Code.IMAGE_ENCODED_AGAIN, which="begun"),
                        f"the output of image {image} is held for request {name}, which has "
                        "computed a part of it",
                        "it is not, and may make room for others",
                    )
        self._step += 1
        freed = {*self._unheld} - self._kept.keys()
        touched = {each.identifier for name in waited for each in self._arrivals[name].images}
        left = {
            image: latest
            for image, (_, latest) in self._unheld.items()
            if image not in touched | freed and not after.get(image)
        }
        for image in sorted(freed):
            first = min(left, key=left.__getitem__, default=image)
            if self._unheld[first][1] < self._unheld[image][0]:
                yield violation(
                    Defect(Code.IMAGE_EVICTED_OUT_OF_TURN),
                    f"the output of image {first} makes room before that of image {image}, which "
                    "was held for a request later",
                    f"that of image {image} does",
                )
        for image in {image for image in self._kept if after.get(image)}:
            self._unheld.pop(image, None)
        for image in self._kept.keys() - after.keys():
            earliest, latest = self._unheld.get(image, (self._step, self._step))
            self._unheld[image] = earliest, self._step if image in touched else latest
        self._unheld = {image: at for image, at in self._unheld.items() if image in self._kept}
        for image, users in after.items():
            for name in {*users}.difference(running, self._in_sessions):
                yield violation(
                    Defect(Code.IMAGE_HELD_WHILE_WAITING),
                    f"the output of image {image} is held for requests that run",
                    f"it is held for request {name}, which does not",
                )

    # --- its parts -------------------------------------------------------------------------------

    def _begun_again(self, plan: Plan) -> Iterator[Violation]:
        """Images that a step encodes again since their outputs were freed too early."""
        for name in plan.encoded:
            for again in self._begun.get(name, set()) & set(
                self._encoded({name: plan.encoded[name]})
            ):
                yield violation(
                    Defect.of(Code.IMAGE_ENCODED_AGAIN, which="begun"),
                    f"the output of image {again} is kept until request {name}, which has "
                    "computed a part of it, has computed the rest",
                    "it is encoded again",
                )

    def _encoded(self, encoded: Mapping[str, Sequence[int]]) -> Iterator[str]:
        for name, places in encoded.items():
            images = self._arrivals[name].images
            yield from (images[place].identifier for place in places)

    def _read(
        self, scheduled: Scheduled, plan: Plan, before: Sequence[Scheduled]
    ) -> Iterator[Violation]:
        """What a request reads of images in a step; ``before`` are those that come before it."""
        assert self._encoder is not None
        name, start = scheduled.request, scheduled.start
        end = start + scheduled.num_tokens
        for image in self._arrivals[name].images:
            last = image.offset + image.length
            if not (image.offset < end + self._ahead and start < last):
                continue
            drafts = image.offset >= end
            if image.identifier not in self._kept:
                full = drafts and self._lacks_room(image, before, plan, name)
                defect = Defect.of(
                    Code.ENCODER_OUTPUT_MISSING,
                    of="drafts" if drafts else "tokens",
                    how=("full" if full else None) if drafts else self._how(image),
                )
                divergence = Divergence.WRONG_DRAFTS if drafts else Divergence.CRASH
                yield Violation(
                    Signature.booked(defect, divergence, SCHEDULER, False),
                    f"the encoder's output of image {image.identifier}, tokens {image.offset} to "
                    f"{last - 1} of request {name}, is there when tokens {start} to {end - 1} are "
                    "computed",
                    "it is not",
                )
            if self._encoder.whole_images and start <= image.offset < end < last:
                yield violation(
                    Defect.of(Code.IMAGE_SPLIT, which=self._which(image, scheduled, plan)),
                    f"image {image.identifier} of request {name}, tokens {image.offset} to "
                    f"{last - 1}, is computed in one step",
                    f"a step ends at {end}",
                )

    def _how(self, image: Image) -> str:
        if image.identifier in self._lost:
            return "reset"
        return "freed" if image.identifier in self._freed else "never"

    def _which(self, image: Image, scheduled: Scheduled, plan: Plan) -> str | None:
        """What tells an image that a step cuts from others."""
        end = scheduled.start + scheduled.num_tokens
        if scheduled.start == image.offset:
            return "first"
        images = self._arrivals[scheduled.request].images
        if any(end < other.offset <= end + self._ahead for other in images):
            return "adjacent"
        encoded = plan.encoded.get(scheduled.request, ())
        encodes = image in (images[place] for place in encoded)
        return None if encodes else "kept"

    def _lacks_room(
        self, image: Image, scheduled: Sequence[Scheduled], plan: Plan, name: str
    ) -> bool:
        """Whether budget or cache have no room for an image that is not there."""
        assert self._encoder is not None
        if image.identifier in self._kept:
            return False
        earlier = {each.request: plan.encoded.get(each.request, ()) for each in scheduled}
        earlier[name] = plan.encoded.get(name, ())
        used = sum(self._sizes[each] for each in self._encoded(earlier))
        if used + image.length > self._encoder.budget:
            return True
        pinned = set(self._encoded(plan.encoded))
        starts = self._passed | {each.request: each.start for each in plan.scheduled}
        for other, passed in starts.items():
            pinned.update(
                each.identifier
                for each in self._arrivals[other].images
                # Where steps are in flight, what they have passed may still be held.
                if not self._in_turn or passed < each.offset + each.length + self._ahead
            )
        held = sum(self._sizes[each] for each in pinned & self._kept.keys())
        return held + image.length > self._encoder.cache_size
