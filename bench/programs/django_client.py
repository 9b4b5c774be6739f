"""Django's test client: requests that query a database and render a template."""

import django
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
    ROOT_URLCONF=__name__,
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
)
django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.template import Context, Template  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402

template = Template("{% for user in users %}<p>{{ user.username|upper }} {{ user.email|default:'-' }}</p>{% endfor %}")


def page(request, count):
    users = User.objects.filter(username__contains="1").order_by("-username")[:count]
    return HttpResponse(template.render(Context({"users": users})))


urlpatterns = [path("<int:count>", page)]
call_command("migrate", verbosity=0)
for number in range(60):
    User.objects.create_user("user%d" % number)
client = Client()
for number in range(250):
    assert client.get("/%d" % (number % 30)).status_code == 200
