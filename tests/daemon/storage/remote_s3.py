#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""remote_s3.py LOG: remote_server.py as an S3 server, with path-style addresses.

Signatures are computed from their definition (Signature Version 4), which is first checked with the example of Amazon's
documentation. Bucket `private` requires a signature by KEY and SECRET for REGION; `session` requires one with TOKEN;
`public` requires none. A list has at most PAGE keys. For `cut`, the first answer to each list breaks off in the middle;
for `loop`, a list repeats its continuation token.
"""
import hashlib
import hmac
import urllib.parse
import xml.sax.saxutils

import remote_server

KEY, SECRET, REGION, TOKEN = "AKTEST", "se/cr+et=", "eu-test-1", "to/ken+=="
PAGE = 3
NAMES = ["data/.hidden", "data/b a&c+d%é<x>.csv", "data/dir/", "data/part-0", "data/part-1",
         "data/part-10", "data/part-2", "data/sub/part-0", "data/sub/deep/part-0", "datb/part-0",
         "odd/..x", "odd/star*[1]"]


def size_of(name):
    return 100000 + len(name)


def hmac256(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(method, path, query, headers, signed, secret, region):
    """headers: by lower-case name; signed: the names of the signed ones."""
    names = ";".join(signed)
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in signed)
    pairs = sorted((pair.split("=", 1) + [""])[:2] for pair in query.split("&") if pair)
    request = "\n".join((method, path, "&".join(map("=".join, pairs)), lines, names,
                         headers["x-amz-content-sha256"]))
    date = headers["x-amz-date"]
    scope = f"{date[:8]}/{region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", date, scope,
                      hashlib.sha256(request.encode()).hexdigest()))
    key = ("AWS4" + secret).encode()
    for part in (date[:8], region, "s3", "aws4_request"):
        key = hmac256(key, part)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def check_signature():
    """"Example: GET Object" of "Authenticating Requests (AWS Signature Version 4)"."""
    headers = {"host": "examplebucket.s3.amazonaws.com", "range": "bytes=0-9",
               "x-amz-content-sha256": hashlib.sha256(b"").hexdigest(),
               "x-amz-date": "20130524T000000Z"}
    got = signature("GET", "/test.txt", "", headers, sorted(headers),
                    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1")
    assert got == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"


class Handler(remote_server.Handler):
    def do_GET(self):
        self.write_log()
        url = urllib.parse.urlsplit(self.path)
        bucket, key = url.path[1:].split("/", 1)
        self.query = {}
        self.faulty = False
        why = self.why_not(bucket, url)
        if why is not None:
            self.deny(403, *why)
        elif key == "":
            self.list(bucket, urllib.parse.parse_qs(url.query, keep_blank_values=True))
        elif urllib.parse.unquote(key) not in NAMES:
            self.deny(404, "NoSuchKey", "The specified key does not exist.")
        else:
            self.serve(self.objects.data(size_of(urllib.parse.unquote(key)), 0), False)

    def deny(self, status, code, message):
        self.query["said"] = (f'<?xml version="1.0"?>\n<Error><Code>{code}</Code>'
                              f"<Message>{message}</Message><AWSAccessKeyId>{KEY}"
                              "</AWSAccessKeyId></Error>")
        self.refuse(status)

    def why_not(self, bucket, url):
        said = self.headers.get("Authorization")
        if said is None:
            return None if bucket == "public" else ("AccessDenied", "Access Denied")
        fields = dict(part.strip().split("=", 1)
                      for part in said[len("AWS4-HMAC-SHA256 "):].split(","))
        headers = {name.lower(): value for name, value in self.headers.items()}
        signed = fields["SignedHeaders"].split(";")
        if fields["Credential"].split("/")[0] != KEY:
            return "InvalidAccessKeyId", "no such key"
        if bucket == "session" and ("x-amz-security-token" not in signed or
                                    headers["x-amz-security-token"] != TOKEN):
            return "AccessDenied", "no session"
        want = signature("GET", url.path, url.query, headers, signed, SECRET, REGION)
        return None if want == fields["Signature"] else ("SignatureDoesNotMatch", "wrong")

    def list(self, bucket, query):
        def one(name):
            return query.get(name, [""])[0]

        assert one("list-type") == "2" and one("encoding-type") == "url"
        names = [name for name in sorted(NAMES) if name.startswith(one("prefix"))]
        rest = [name[len(one("prefix")):] for name in names]
        if one("delimiter"):
            names = [name for name, tail in zip(names, rest) if "/" not in tail]
        first = int(one("continuation-token")[len("at/+"):]) if one("continuation-token") else 0
        more = first + PAGE < len(names) or bucket == "loop"
        body = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3">'
        body += f"<Name>{bucket}</Name><EncodingType>url</EncodingType>"
        body += f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        if more:
            body += f"<NextContinuationToken>at/+{0 if bucket == 'loop' else first + PAGE}</NextContinuationToken>"
        for name in names[first:first + PAGE]:
            key = xml.sax.saxutils.escape(urllib.parse.quote_plus(name, safe="/&"))
            body += f"<Contents><Key>{key}</Key><Size>{size_of(name)}</Size></Contents>"
        data = (body + "</ListBucketResult>").encode() if bucket != "html" else b"<html><p>Welcome</html>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if bucket == "cut" and self.objects.count(self.path) == 1:
            data = data[:len(data) * 2 // 3]
            self.close_connection = True
        self.wfile.write(data)


if __name__ == "__main__":
    check_signature()
    remote_server.main(Handler)
