"""Who is where when, in the results of a photo or a video."""

from di2pose.result import Person, Result


def people_of(results: list[Result]) -> dict[int, list[Person | None]]:
    """Each person through all frames, None where they are not: by track, or by their place in the one photo."""
    found: dict[int, list[Person | None]] = {}
    for k, result in enumerate(results):
        for place, person in enumerate(result.people):
            number = place if person.track is None else person.track
            found.setdefault(number, [None] * len(results))[k] = person
    return dict(sorted(found.items()))


def moment(results: list[Result], fps: float | None, k: int) -> float:
    """Seconds of frame k: as the video says, else by the rate; 0 for a photo."""
    time = results[k].time_s
    if time is not None:
        return time
    return 0.0 if fps is None else k / fps
