"""How a notice leaves: a letter, a request to a web address, a program's standard input. Each may fail."""

import json
import os
import smtplib
import subprocess
import urllib.request
from collections.abc import Callable
from email.message import EmailMessage
from typing import Any

from wardround.core.text import plain_line
from wardround.deploy.notices.settings import PASSWORD, CommandSettings, EmailSettings, NoticeSettings, WebhookSettings

PATIENCE = 15.0
"""Seconds that a mail server, a web address or a program has."""


def deliver(settings: NoticeSettings, words: dict[str, Any]) -> list[str]:
    """Send a notice every way that is set; gives what went wrong, in words."""
    email, webhook, command = settings.email, settings.webhook, settings.command
    ways: dict[str, Callable[[], None]] = {}
    if email is not None:
        ways["email"] = lambda: send_email(email, words)
    if webhook is not None:
        ways["webhook"] = lambda: post(webhook, words)
    if command is not None:
        ways["command"] = lambda: run_program(command, words)
    wrong = []
    for name, send in ways.items():
        try:
            send()
        except (OSError, smtplib.SMTPException, subprocess.SubprocessError, ValueError) as error:
            wrong.append(f"{name}: {plain_line(error, 300)}")
    return wrong


def send_email(way: EmailSettings, words: dict[str, Any]) -> None:
    letter = EmailMessage()
    letter["Subject"] = f"wardround: {plain_line(words['title'], 150)}"
    letter["From"], letter["To"] = way.sender, ", ".join(way.recipients)
    letter.set_content("\n\n".join(part for part in (words["text"], words["command"]) if part) + "\n")
    host, _, port = way.server.rpartition(":")
    kind = smtplib.SMTP_SSL if way.security == "tls" else smtplib.SMTP
    with kind(host or way.server, int(port) if host else 0, timeout=PATIENCE) as server:
        if way.security == "starttls":
            server.starttls()
        if way.user:
            server.login(way.user, os.environ.get(PASSWORD, ""))
        server.send_message(letter)


def post(way: WebhookSettings, words: dict[str, Any]) -> None:
    body = json.dumps(words).encode()
    asked = urllib.request.Request(way.url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
        answer.read(1)


def run_program(way: CommandSettings, words: dict[str, Any]) -> None:
    subprocess.run(way.run, input=json.dumps(words).encode(), timeout=PATIENCE, check=True, capture_output=True)
