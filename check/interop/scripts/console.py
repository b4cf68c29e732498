"""The console in a browser: console.py FOLDER. With CONSOLE_PICTURES, pictures of the pages go into that
folder."""

import os
import sys
import urllib.request

from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

folder = sys.argv[1]
endpoint = os.environ["AWS_ENDPOINT_URL"]
pictures = os.environ.get("CONSOLE_PICTURES")
options = webdriver.ChromeOptions()
for option in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,900"]:
    options.add_argument(option)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
# Pages are drawn again while this looks at them.
patience = WebDriverWait(browser, 60, ignored_exceptions=[WebDriverException])


def picture(name):
    if pictures:
        browser.save_screenshot(os.path.join(pictures, f"{name}.png"))


def find(selector):
    return patience.until(lambda b: b.find_element(By.CSS_SELECTOR, selector))


def named(label, tag="button"):
    """A button or link that is there, by its text."""
    path = f"//{tag}[normalize-space()='{label}']"
    visible = lambda b: (e for e in b.find_elements(By.XPATH, path) if e.is_displayed())
    return patience.until(lambda b: next(visible(b), None))


def press(find_it):
    patience.until(lambda _: find_it().click() or True)


def click(label, tag="button"):
    press(lambda: named(label, tag))


def shown(text):
    body = lambda: browser.find_element(By.TAG_NAME, "body").text
    try:
        patience.until(lambda _: text in body())
    except TimeoutException:
        raise AssertionError(f"{text!r} is not in {body()}") from None


def field(name, value):
    element = find(f"[name={name}]")
    element.clear()
    element.send_keys(value)


try:
    browser.get(f"{endpoint}/_console/")
    field("access", os.environ["AWS_ACCESS_KEY_ID"])
    field("secret", "wrong")
    picture("sign-in")
    click("Sign in")
    shown("The secret key is not that of the access key.")
    field("secret", os.environ["AWS_SECRET_ACCESS_KEY"])
    click("Sign in")
    shown("You have no bucket yet.")
    click("New bucket")
    field("name", "from-console")
    click("Create")
    shown("Bucket from-console was created.")
    click("from-console", "a")

    path = os.path.join(folder, "note.txt")
    with open(path, "w") as file:
        file.write("hello from a browser\n")
    find("#files").send_keys(path)
    shown("note.txt was uploaded.")
    large = os.path.join(folder, "large.bin")
    with open(large, "wb") as file:
        file.write(os.urandom(17 << 20))
    find("#files").send_keys(large)
    shown("large.bin was uploaded.")
    shown("17.0 MiB")
    picture("bucket")
    click("note.txt", "a")
    shown("hello from a browser")
    click("Tags")
    find("[name=tags]").send_keys("team=blue")
    picture("tags")
    click("Save")
    shown("The tags were saved.")
    click("Share")
    click("Make the link")
    link = find("[name=link]").get_attribute("value")
    assert urllib.request.urlopen(link).read() == b"hello from a browser\n"
    click("OK")
    picture("object")

    browser.get(f"{endpoint}/_console/#/settings/from-console")
    click("Keep versions")
    shown("Every version of an object is kept.")
    click("Add Lifecycle")
    click("Save")
    shown("AbortIncompleteMultipartUpload")
    picture("settings")
    click("Usage", "a")
    shown("17.0 MiB in 2 objects and 1 buckets")
    picture("usage")
    click("Users", "a")
    click("New user")
    field("uid", "carla")
    field("name", "Carla")
    click("Create")
    shown("Carla")
    click("New key")
    shown("The user has a new key.")
    picture("user")

    browser.get(f"{endpoint}/_console/#/b/from-console")
    for name in ["large.bin", "note.txt"]:
        press(lambda: find(f"[aria-label='Delete {name}']"))
        press(lambda: find("dialog button.danger"))
        shown(f"{name} was deleted.")
    click("Sign out")
    shown("Access key")
    severe = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    faults = [message for message in severe if "status of 4" not in message]
    assert not faults, faults
finally:
    browser.quit()
