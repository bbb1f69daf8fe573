import pytest
from output.browser import CHROMEDRIVER, CHROMIUM, Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None or CHROMEDRIVER is None:
        pytest.skip("no chromium and chromedriver: apt-get install chromium chromium-driver")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
