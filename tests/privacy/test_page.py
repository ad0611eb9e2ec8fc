"""The page is whole, stands alone, and says of every agent what the audit says."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import hushgrad as hg
from hushgrad.privacy import drawing
from hushgrad.privacy.page import page, write_page
from support import cases

STEP = hg.stepsizes.constant(0.1)
VOID = {"meta", "circle", "line", "path"}  # what the page leaves unclosed, or closes by itself


class Tree(HTMLParser):
    """Checks that tags are balanced, and keeps what is in them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    def count(self, tag, **attrs):
        wanted = {name.rstrip("_"): value for name, value in attrs.items()}
        return sum(t == tag and wanted.items() <= a.items() for t, a in self.seen)


def audited(algorithm, network, problem, iterations=100, **options):
    run = hg.run(algorithm, problem, network, iterations=iterations, engine="agents")
    return hg.audit(run, **options)


@pytest.fixture(scope="module")
def audits():
    network, problem = cases.undirected(), cases.Quadratics(d=3, by_hand=True).problem
    algorithms = hg.EXTRA(stepsize=STEP), hg.PDGDS(stepsize=hg.stepsizes.diminishing(0.5))
    return [audited(a, network, problem) for a in algorithms]


@pytest.fixture(scope="module")
def meeting():
    network = hg.Network(hg.graphs.ring(5))
    problem = hg.problems.rendezvous(n_agents=5, seed=2)
    return audited(hg.DIGing(stepsize=STEP), network, problem)


def test_the_page_has_every_agent_method_and_adversary(audits):
    text = page(audits)
    tree = Tree(text)
    words = " ".join(tree.texts)
    for audit in audits:
        assert tree.texts.count(audit.label) == 2  # the matrix and a section
    for agent in range(cases.M):
        assert f">agent {agent}</th>" in text
        assert words.count(f"agent {agent}: ") == 6  # in three networks of two methods
    for head in ("eavesdropper", "one neighbour", "all neighbours"):
        assert head in tree.texts


def test_agents_are_marked_by_their_verdicts(audits):
    for audit in audits:
        for kind in audit.kinds:
            tree = Tree(drawing.network(audit, kind))
            for verdict, name in drawing.CLASSES.items():
                assert tree.count("g", class_=f"mark {name}") == audit.count(kind, verdict)
            assert tree.count("line") == len(cases.UNDIRECTED)
            assert tree.count("text") == cases.M
    assert audits[1].count("neighbour", "direction exposed") == cases.M  # by the first message
    shapes = {drawing.mark(v).replace(c, "") for v, c in drawing.CLASSES.items()}
    assert len(shapes) == 2  # full and hollow differ by their filling, half has a shape besides


def test_the_page_needs_nothing_from_elsewhere(audits, meeting):
    for text in (page(audits), page([meeting])):
        assert not re.search(r"https?:|//|src=|@import|url\(|<script|<link|<iframe", text)


def test_the_page_follows_the_readers_light_or_dark_and_narrow_or_wide(audits):
    text = page(audits)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert "max-width" in text
    names = set(re.findall(r"var\((--\w+)\)", text))
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in text.split("@media", 2)[:2])
    assert names == light == dark


def test_labels_are_text_and_never_markup(audits):
    text = page([replace(audits[0], label="<script>alert(1)</script>")], heading="a & b")
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "<h1>a &amp; b</h1>" in text
    Tree(text)


def test_the_page_calls_nobody_safe(audits, meeting):
    words = " ".join(Tree(page([*audits, meeting])).texts)
    assert not re.search(r"safe|hidden|secure|protected", words, re.IGNORECASE)


def test_the_map_shows_where_agents_stand_and_where_they_were_found(meeting):
    found = [f for f in meeting.findings if f.kind == "eavesdropper"]
    assert [f.exposure for f in found] == ["exposed"] * 5
    for finding in found:
        np.testing.assert_allclose(finding.place, meeting.places[finding.agent], rtol=1e-6)
    tree = Tree(drawing.rendezvous_map(meeting, "eavesdropper"))
    assert tree.count("circle", class_="place") == 5
    assert tree.count("g", class_="found") == 5
    lost = replace(meeting, findings=tuple(replace(f, place=None) for f in meeting.findings))
    assert Tree(drawing.rendezvous_map(lost, "eavesdropper")).count("g", class_="found") == 0
    assert "Where the agents stand" in page([meeting])


def test_what_was_recovered_lies_on_the_place_in_the_map(meeting):
    svg = drawing.rendezvous_map(meeting, "eavesdropper")
    rings = np.array(re.findall(r'place" cx="([\d.]+)" cy="([\d.]+)"', svg), float)
    crosses = np.array(re.findall(r'd="M([\d.]+) ([\d.]+)l10', svg), float) + 5
    np.testing.assert_allclose(crosses, rings, atol=0.11)
    (x, y), p = rings.T, np.array(meeting.places)
    assert np.corrcoef(x, p[:, 0])[0, 1] > 0.999
    assert np.corrcoef(y, p[:, 1])[0, 1] < -0.999  # upwards on the page is smaller y


def test_a_problem_without_places_has_no_map(audits):
    assert audits[0].places is None
    assert "Where the agents stand" not in page(audits)


@pytest.mark.parametrize("graph", [hg.graphs.path(6), hg.graphs.ring(8), hg.graphs.grid(3, 4)])
def test_in_the_drawing_distances_are_near_the_numbers_of_hops(graph):
    n = graph.n_agents
    links = [(j, i) for j, i in zip(graph.senders.tolist(), graph.receivers.tolist()) if j < i]  # noqa: B905  # from one graph
    z = drawing.layout(n, links)
    linked = np.array([np.linalg.norm(z[j] - z[i]) for j, i in links])
    assert 0.6 < linked.min() <= linked.max() < 1.5
    apart = np.linalg.norm(z[:, None] - z[None], axis=2)[np.triu_indices(n, 1)]
    assert apart.min() > 0.6


def test_every_agent_is_within_the_picture(audits):
    svg = drawing.network(audits[0], "eavesdropper")
    at = np.array(re.findall(r'cx="([-\d.]+)" cy="([-\d.]+)"', svg), float)
    assert len(at) == cases.M
    assert (at > 10).all()
    assert (at < [330, 250]).all()


def test_a_network_too_large_to_draw_still_has_its_table(audits, monkeypatch):
    monkeypatch.setattr(drawing, "MOST", 6)
    text = page(audits)
    assert "<figure>" not in text
    assert ">agent 6</th>" in text


def test_html_is_written_with_the_directories_that_it_needs(audits, tmp_path):
    path = audits[0].html(tmp_path / "new" / "audit.html")
    assert path.read_text(encoding="utf-8") == page([audits[0]])
    assert write_page(audits, path).read_text(encoding="utf-8") == page(audits)
    assert [p.name for p in path.parent.iterdir()] == ["audit.html"]
