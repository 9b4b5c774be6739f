// Requests to a service: parsed by templates, some of them refused by exceptions that pass several frames.
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

struct Value;
using List = std::vector<Value>;
using Table = std::map<std::string, Value>;
struct Value {
    std::variant<double, std::string, std::shared_ptr<List>, std::shared_ptr<Table>> is;
};

struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

template <class Next> auto skip_spaces(Next next) {
    return [next](std::istringstream &in) {
        in >> std::ws;
        return next(in);
    };
}

static Value parse(std::istringstream &in, int depth);

static std::string text(std::istringstream &in) {
    std::string out;
    for (int c = in.get(); c != '"'; c = in.get()) {
        if (c < 0)
            throw Refused("a text without an end");
        out.push_back(static_cast<char>(c));
    }
    return out;
}

static Value parse(std::istringstream &in, int depth) {
    if (depth > 40)
        throw Refused("too deep");
    const int c = skip_spaces([](std::istringstream &at) { return at.get(); })(in);
    if (c == '[') {
        auto list = std::make_shared<List>();
        while (skip_spaces([](std::istringstream &at) { return at.peek(); })(in) != ']') {
            list->push_back(parse(in, depth + 1));
            if (in.peek() == ',')
                in.get();
        }
        in.get();
        return {list};
    }
    if (c == '{') {
        auto table = std::make_shared<Table>();
        while (skip_spaces([](std::istringstream &at) { return at.peek(); })(in) != '}') {
            if (in.get() != '"')
                throw Refused("no key");
            const std::string key = text(in);
            in.get();
            (*table)[key] = parse(in, depth + 1);
            if (in.peek() == ',')
                in.get();
        }
        in.get();
        return {table};
    }
    if (c == '"')
        return {text(in)};
    in.unget();
    double number = 0;
    if (!(in >> number))
        throw Refused("no number");
    return {number};
}

static std::size_t weigh(const Value &value) {
    return std::visit(
        [](const auto &is) -> std::size_t {
            using Is = std::decay_t<decltype(is)>;
            if constexpr (std::is_same_v<Is, double>)
                return 1;
            else if constexpr (std::is_same_v<Is, std::string>)
                return std::regex_match(is, std::regex("[a-z]+[0-9]*")) ? is.size() : 0;
            else {
                std::size_t sum = 0;
                if constexpr (std::is_same_v<Is, std::shared_ptr<List>>)
                    for (const auto &each : *is)
                        sum += weigh(each);
                else
                    for (const auto &[key, each] : *is)
                        sum += key.size() + weigh(each);
                return sum;
            }
        },
        value.is);
}

int main() {
    std::map<std::string, std::function<std::size_t(const std::string &)>> routes;
    for (const char *name : {"/a", "/b", "/c"})
        routes[name] = [](const std::string &body) {
            std::istringstream in(body);
            return weigh(parse(in, 0));
        };
    std::size_t sum = 0, refused = 0;
    for (int request = 0; request < 6000; request++) {
        std::string body = "1";
        for (int depth = 0; depth < request % 47; depth++)
            body = depth % 3 ? "[" + body + ",\"word" + std::to_string(depth) + "\"]" : "{\"key\":" + body + "}";
        try {
            sum += routes.at(std::string("/") + "abcd"[request % 4])(request % 5 ? body : body + "\"x");
        } catch (const Refused &) {
            refused++;
        } catch (const std::out_of_range &) {
            refused++;
        }
    }
    std::cout << sum << ' ' << refused << '\n';
}
