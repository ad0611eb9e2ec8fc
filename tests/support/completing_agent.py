"""A site that completes averages: it waits for all messages and then chooses every site's sum.

It is linked with all other sites, and all are linked. The average of agent j is (Σ x_i)/m. So the
message S_j − Σ_{i ≠ me} x_i makes j see the sum S_j, whatever the others sent, in every average.
"""

from contextlib import suppress

import numpy as np

from hushgrad.files.digest import commitment
from hushgrad.fitting.contracts import contract, contract_digest
from hushgrad.fitting.lockstep import add, drive
from hushgrad.network.deployed import Agent
from hushgrad.network.keys.masking import confirmation_tokens
from hushgrad.network.protocol.frames import encode_data
from support.fits import programmes


class Story:
    """The pooled sums of a fit to rows of the attacker's choice, as an agent would see them."""

    def __init__(self, model, sites, dim):
        self.sums = []

        def pool(vectors):
            got = add(vectors)
            self.sums.append(np.pad(got[0], (0, dim - len(got[0]))))
            return got

        self.result = drive(programmes(model, sites), pool)[0]
        end = b"table" + self.result.estimate.tobytes()
        begin = contract_digest(contract(model)).encode()
        self.seen = commitment(b"".join([begin, *map(bytes, self.sums), end]))


class CompletingAgent(Agent):
    """Tells every neighbour its own story."""

    def __init__(self, config, *, stories, **options):
        self._stories = stories  # by number of the neighbour
        super().__init__(config, **options)

    @property
    def _hub(self):
        return self._real_hub

    @_hub.setter
    def _hub(self, hub):
        self._real_hub = hub
        if hub is not None:
            welcome = hub.welcome
            hub.send_round = lambda: None  # nothing goes out before all others have spoken
            hub.welcome = lambda link, peer, backlog: welcome(link, peer, ())

    @property
    def _stages(self):
        return self._real_stages

    @_stages.setter
    def _stages(self, stages):
        self._real_stages = stages
        if stages is not None:
            pool, first = stages.pool, next(iter(self._stories.values()))
            stages.pool = lambda stage, average: pool(stage, first.sums[stage] / 3)

    @property
    def _rounds(self):
        return self._real_rounds

    @_rounds.setter
    def _rounds(self, rounds):
        self._real_rounds = rounds
        if rounds is not None:
            advance = rounds.advance
            rounds.advance = lambda inbox: (self._complete(rounds, inbox), advance(inbox))[1]

    def _complete(self, rounds, inbox):
        heard = sum(data.payload[0] for data in inbox.values())
        for j, story in self._stories.items():
            with suppress(KeyError):  # the neighbour is gone
                frame = encode_data(rounds.round, b"", (story.sums[rounds.stage] - heard,))
                self._hub._links[j].send(frame)

    def tokens(self, config, shares, seen):
        """In place of `confirmation_tokens`: the right token for every neighbour's story."""
        own, right = confirmation_tokens(config, shares, seen)
        if config.number == self.config.number:
            for j, story in self._stories.items():
                own |= {
                    way: token
                    for way, token in confirmation_tokens(config, shares, story.seen)[0].items()
                    if way[1] == j
                }
        return own, right
