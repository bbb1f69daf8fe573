"""The nginx set-up of docs/serve.md, with a real nginx on a port that is not 80 or 443."""

import pytest
from serve.proxy import behind_nginx
from serve.running import QUICK, Running, running


@pytest.mark.parametrize("path", ["/", "/pose/"])
def test_the_page_may_ask_through_the_documented_proxy(model, photos, tmp_path, path):
    with running(model, hosts=("pose.example",)) as service, behind_nginx(tmp_path, service.port, path) as port:
        proxy = Running(port, service.worker, headers={"Host": f"pose.example:{port}"})
        assert proxy.get(path).body == service.get("/").body
        assert proxy.get(f"{path}static/app.js").body == service.get("/static/app.js").body
        for origin, status in ((f"http://pose.example:{port}", 200), ("http://evil.example", 403)):
            answer = proxy.post(f"{path}v1/predict", photos[4], headers={"Origin": origin}, **QUICK)
            assert answer.status == status
        if path != "/":
            moved = proxy.get(path.rstrip("/"))
            assert (moved.status, moved.headers["location"]) == (301, f"http://pose.example:{port}{path}")
