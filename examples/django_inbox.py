"""A Django application behind Dwell, in one file: an inbox per person.

    python3 examples/django_inbox.py LISTEN MEMCACHED

`POST /send/NAME` adds a message. `/poll/inbox/NAME` is a poll that found no value. A signal of the
model is the one place that stores what polls are answered with, so nothing that saves a message can
forget it.
"""

import json
import sys

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection, models
from django.db.models.signals import post_save
from django.http import HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from pymemcache import PooledClient

LISTEN, MEMCACHED = sys.argv[1:]

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": "file:inbox?mode=memory&cache=shared",
            "OPTIONS": {"uri": True},
        }
    },
)
django.setup()
cache = PooledClient(MEMCACHED, default_noreply=False)


class Message(models.Model):
    to = models.CharField(max_length=50)
    text = models.TextField()

    class Meta:
        app_label = "inbox"


def store(name):
    """Stores what a poll of this inbox gets, and returns it."""
    messages = Message.objects.filter(to=name).order_by("id")
    value = json.dumps([message.text for message in messages])
    cache.set(f"/poll/inbox/{name}", value)
    return value


def saved(sender, instance, **_):
    store(instance.to)


post_save.connect(saved, sender=Message)


def poll(request, name):
    return HttpResponse(store(name), content_type="application/json")


@csrf_exempt
def send(request, name):
    Message.objects.create(to=name, text=request.body.decode())
    return JsonResponse({"sent": True})


urlpatterns = [path("poll/inbox/<name>", poll), path("send/<name>", send)]

if __name__ == "__main__":
    connection.ensure_connection()  # The database lives as long as somebody has it open.
    with connection.schema_editor() as editor:
        editor.create_model(Message)
    call_command("runserver", LISTEN, use_reloader=False, use_threading=True)
