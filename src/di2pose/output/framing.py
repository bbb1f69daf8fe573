"""Who the figure and the 3D view of the pages are framed round: the main people, not those far behind them."""

from collections.abc import Sequence

from di2pose.result import Person

SMALL, FAR = 0.35, 2.0
"""Who is not main: the longer side of the box below this share of the largest box's, and the pelvis more than so many
times as far away as that person's. Of two people of one size the farther is small from 2.9 times the distance on; both
conditions keep who is near but mostly hidden or cut, and who stands behind a close-up."""


def main_people(people: Sequence[Person]) -> list[bool]:
    """Whether each of the people in a picture is one of the main ones; the largest always is."""
    if not people:
        return []
    sides = [max(person.box[2] - person.box[0], person.box[3] - person.box[1]) for person in people]
    largest = sides.index(max(sides))
    away = FAR * float(people[largest].root_mm[2])
    return [
        side >= SMALL * sides[largest] or float(person.root_mm[2]) <= away
        for side, person in zip(sides, people, strict=True)
    ]
