# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, by its DevTools protocol over a pipe. Only Python's standard library.

    with Browser(find()) as browser:
        browser.open("http://127.0.0.1:9464/")
        browser.wait("document.title == 'stager'")
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from daemon import SLOW, Failed

LIMIT_S = 30 * SLOW
PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")


def find():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="stg-browser-")
        to_read, self.to_write = os.pipe()
        self.to_read, to_write = os.pipe()
        self.log = open(os.path.join(self.folder, "log"), "wb")
        self.number, self.pending, self.buffer, self.session = 0, [], b"", None
        self.urls, self.console = [], []
        # The protocol's descriptors are 3 and 4.
        shell = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
             "--disable-sync", "--no-default-browser-check", "--hide-scrollbars",
             "--force-color-profile=srgb", "--user-data-dir=" + os.path.join(self.folder, "profile")],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env=dict(os.environ, HOME=self.folder, LC_ALL="C.UTF-8"))
        os.close(to_read)
        os.close(to_write)

    def __enter__(self):
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(domain + ".enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for fd in (self.to_write, self.to_read):
            os.close(fd)
        try:
            self.process.wait(10 * SLOW)  # it ends with its pipe
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, end):
        """The next message; None at the end of the time."""
        while b"\0" not in self.buffer:
            if not select.select([self.to_read], [], [], max(0, end - time.monotonic()))[0]:
                return None
            part = os.read(self.to_read, 1 << 16)
            if not part:
                with open(self.log.name, encoding="utf-8", errors="replace") as log:
                    raise Failed(f"chromium ended:\n{log.read()[-3000:]}")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        """Keeps what a test asks for later: requests, and what the page complains of."""
        method, given = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.urls.append(given["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(given["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.console.append(given["type"] + ": " + " ".join(str(a.get("value", a)) for a in given["args"]))
        elif method == "Log.entryAdded":
            self.console.append(f"{given['entry']['level']}: {given['entry']['text']} {given['entry'].get('url', '')}")
        elif method == "Page.javascriptDialogOpening":
            self.console.append("dialog: " + given["message"])

    def call(self, method, **given):
        self.number += 1
        message = dict(id=self.number, method=method, params=given)
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + LIMIT_S
        while True:
            answer = self.read(end)
            if answer is None:
                raise Failed(f"chromium does not answer {method}")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def value(self, expression):
        """What JavaScript makes of the expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise Failed(f"{expression}: {json.dumps(result['exceptionDetails'])}")
        return result["result"].get("value")

    def wait(self, expression):
        """Until the expression is true; the page changes once a second."""
        end = time.monotonic() + LIMIT_S
        while not self.value(expression):
            if time.monotonic() > end:
                raise Failed(f"never true: {expression}\n{self.value('document.body.innerText')}\n{self.console}")
            message = self.read(time.monotonic() + 0.05)
            if message is not None:
                self.note(message)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def key(self, name):
        """Presses a key; "a" writes the letter."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        given = dict(key=name, code=name, windowsVirtualKeyCode=codes[name]) if name in codes else dict(key=name, text=name)
        if name == "Enter":
            given["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **given)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{k: v for k, v in given.items() if k != "text"})

    def look(self, width, height, scheme):
        """A window of that size; scheme: light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[dict(name="prefers-color-scheme", value=scheme)])

    def screenshot(self, path=None):
        """A PNG of the window; returns its bytes."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if path is not None:
            with open(path, "wb") as file:
                file.write(data)
        return data
