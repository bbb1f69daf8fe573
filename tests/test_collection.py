"""What lets the suite run in several processes: every one of them has to find the same tests."""


def test_no_id_of_a_test_depends_on_the_order_of_a_set(request):
    """Python orders sets of strings anew in every process. Of all tests of this run."""
    ids = []
    for item in request.session.items:
        values = item.callspec.params.values() if hasattr(item, "callspec") else ()
        sets = [value for value in values if isinstance(value, set | frozenset) and len(value) > 1]
        ids += [item.nodeid for value in sets if str(value) in item.nodeid]
    assert ids == []
