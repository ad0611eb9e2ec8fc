"""The benchmark of masks measures the whole mask of one agent."""

from benchmarks.simulator import masks
from hushgrad.masks import ZeroSum


def test_every_partner_and_every_number_is_measured(monkeypatch, capsys):
    asked = []

    def mask(self, number, sizes, *, n_agents, pair_words):
        partners = self.partners(number, n_agents)
        asked.extend((j, len(pair_words(j)(sizes.n_words))) for j in partners)

    monkeypatch.setattr(ZeroSum, "mask", mask)
    assert masks.of_one_agent(7, 5)[0] == 7 + 28 + 1
    assert asked == [(j, 4 * 36) for j in range(1, 6)]
    monkeypatch.undo()
    assert masks.main(["--dims", "3", "--partners", "2"]) == 0
    assert "d =     3, 2 partners, 10 numbers each" in capsys.readouterr().out
