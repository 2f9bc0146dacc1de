"""A small SVG of horizontal bars: a panel for each metric, a bar for each subject, a whisker from least to most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

PANEL_WIDTH = 460
ROW_HEIGHT = 26
BAR_HEIGHT = 14
LABEL_WIDTH = 84
VALUE_WIDTH = 66
GAP = 28
HEADER_HEIGHT = 64
TITLE_HEIGHT = 30
COLUMNS = 2

STYLE = """
  text { font-family: system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif; font-size: 12px; fill: #1f2937 }
  .title { font-size: 17px; font-weight: 600 }
  .note { fill: #6b7280 }
  .panel { font-size: 13px; font-weight: 600 }
  .own { font-weight: 600 }
  .bar { fill: #a8b3c2 }
  .bar.own { fill: #0e7490 }
  .whisker { stroke: #374151; stroke-width: 1 }
"""


@dataclass(frozen=True)
class Bar:
    """One subject's median, with the least and the most that was seen."""

    label: str
    value: float
    least: float
    most: float
    own: bool
    """Whether it is Egret's, which stands out."""


@dataclass(frozen=True)
class Panel:
    """One metric."""

    title: str
    bars: Sequence[Bar]
    digits: int


def draw(title: str, subtitle: str, panels: Sequence[Panel]) -> str:
    """The whole picture."""
    rows = max(len(panel.bars) for panel in panels)
    panel_height = TITLE_HEIGHT + rows * ROW_HEIGHT
    lines = -(-len(panels) // COLUMNS)
    width = GAP + COLUMNS * (PANEL_WIDTH + GAP)
    height = HEADER_HEIGHT + lines * (panel_height + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text class="title" x="{GAP}" y="28">{escape(title)}</text>',
        f'<text class="note" x="{GAP}" y="47">{escape(subtitle)}</text>',
    ]
    for index, panel in enumerate(panels):
        x = GAP + index % COLUMNS * (PANEL_WIDTH + GAP)
        y = HEADER_HEIGHT + index // COLUMNS * (panel_height + GAP)
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel) -> list[str]:
    room = PANEL_WIDTH - LABEL_WIDTH - VALUE_WIDTH
    scale = room / max((bar.most for bar in panel.bars), default=1.0)
    parts = [f'<text class="panel" x="0" y="14">{escape(panel.title)}</text>']
    for row, bar in enumerate(panel.bars):
        parts += _bar(bar, TITLE_HEIGHT + row * ROW_HEIGHT, scale, panel.digits)
    return parts


def _bar(bar: Bar, y: int, scale: float, digits: int) -> list[str]:
    middle, width = y + BAR_HEIGHT / 2, bar.value * scale
    own = " own" if bar.own else ""
    least, most = (LABEL_WIDTH + value * scale for value in (bar.least, bar.most))
    baseline = f'y="{middle:.1f}" dominant-baseline="central"'
    return [
        f'<text class="label{own}" x="{LABEL_WIDTH - 10}" {baseline} text-anchor="end">{escape(bar.label)}</text>',
        f'<rect class="bar{own}" x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>',
        f'<line class="whisker" x1="{least:.1f}" x2="{most:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>',
        f'<text class="value{own}" x="{most + 8:.1f}" {baseline}>{bar.value:,.{digits}f}</text>',
    ]
