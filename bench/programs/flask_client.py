"""Flask's test client: requests that render a template."""

import flask

app = flask.Flask("app")


@app.route("/<int:count>")
def page(count):
    text = "{% for i in range(count) %}<p class='{{ loop.cycle('a', 'b') }}'>{{ i * 2 }}</p>{% endfor %}"
    return flask.render_template_string(text, count=count)


with app.test_client() as client:
    for number in range(600):
        assert client.get("/%d" % (number % 40)).status_code == 200
