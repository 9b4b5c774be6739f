/* guards - uu.h in C++: what is registered, captured or looked up belongs to a value, and ends with it.
 *
 *     c++ -std=c++17 -O2 -g -Itarget/uu/include -o guards examples/cpp/guards.cpp -Ltarget/uu/lib -luunwind -Wl,-rpath,target/uu/lib
 *     ./guards
 *
 * Code:    executable memory
 * Window:  code that walks can step and name, until the value ends; the code is freed only once no walk reads it
 * Stack:   a captured stack, with the functions of its frames
 */
#include <cerrno>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <utility>
#include <uu.h>
#include <vector>

/* Throws the error of a call that returned a negative errno. */
static int checked(int result, const char *call) {
    if (result < 0)
        throw std::system_error(-result, std::generic_category(), call);
    return result;
}

class Code {
  public:
    explicit Code(const std::vector<unsigned char> &bytes) : size(bytes.size()) {
        void *at = mmap(nullptr, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            throw std::system_error(errno, std::generic_category(), "mmap");
        start = static_cast<unsigned char *>(std::memcpy(at, bytes.data(), size));
    }
    Code(Code &&other) noexcept : start(std::exchange(other.start, nullptr)), size(other.size) {}
    Code &operator=(Code &&) = delete;
    ~Code() {
        if (start)
            munmap(start, size);
    }
    const unsigned char *begin() const { return start; }
    size_t length() const { return size; }
    /* Never frees it. */
    void leak() { start = nullptr; }

  private:
    unsigned char *start = nullptr;
    size_t size;
};

class Window {
  public:
    /* One function, which keeps a frame pointer. */
    Window(Code code, std::string name) : held(std::make_unique<Held>(Held{std::move(code), std::move(name), {}})) {
        const std::string &text = held->name;
        held->function.len = static_cast<uint32_t>(held->code.length());
        held->function.unwind = UU_NO_UNWIND;
        held->function.name = text.data();
        held->function.name_len = static_cast<uint32_t>(text.size());
        uu_window window{};
        window.size = sizeof window;
        window.kind = UU_WINDOW_FRAME_POINTER;
        window.text = held->code.begin();
        window.text_len = held->code.length();
        window.functions = &held->function;
        window.functions_room = 1;
        checked(uu_register_window(&window), "uu_register_window");
    }
    Window(Window &&) = default;
    Window &operator=(Window &&) = delete;
    ~Window() {
        /* Where a walk still reads it after a second, nothing of it may be freed. */
        if (held && uu_unregister_window(held->code.begin()) != 0) {
            held->code.leak();
            (void)held.release();
        }
    }

  private:
    struct Held {
        Code code;
        std::string name;
        uu_function function;
    };
    std::unique_ptr<Held> held;
};

class Stack {
  public:
    /* The caller's stack: this function's own frame is left out. */
    __attribute__((noinline)) static Stack capture() {
        Stack stack;
        stack.words.resize(2 * 512);
        uu_request request{};
        request.size = sizeof request;
        request.frames = stack.words.data();
        request.capacity = stack.words.size();
        request.skip = 1;
        checked(uu_walk(&request), "uu_walk");
        stack.words.resize(request.words);
        stack.complete = request.stop == UU_STOP_COMPLETE && request.doubt == 0;
        return stack;
    }
    bool is_complete() const { return complete; }
    /* A line for each function. */
    std::string text() const {
        const uu_symbol *first = nullptr;
        checked(uu_symbolize(words.data(), words.size(), &first), "uu_symbolize");
        std::unique_ptr<const uu_symbol, void (*)(const uu_symbol *)> symbols(first, uu_symbols_free);
        std::string text;
        for (const uu_symbol *s = first; s; s = s->next) {
            text += *s->function ? s->function : "?";
            if (s->line)
                text += std::string(" ") + s->file + ":" + std::to_string(s->line);
            text += s->flags & UU_SYMBOL_INLINED ? " inlined\n" : "\n";
        }
        return text;
    }

  private:
    std::vector<uint64_t> words;
    bool complete = false;
};

static Stack seen;
extern "C" void callback() { seen = Stack::capture(); }

/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
static const std::vector<unsigned char> calls_back = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};

int main() try {
    checked(uu_setup(), "uu_setup");
    Code code(calls_back);
    const unsigned char *start = code.begin();
    {
        Window window(std::move(code), "jitted");
        void (*jitted)(void (*)());
        std::memcpy(&jitted, &start, sizeof jitted);
        jitted(callback);
    }
    std::cout << "after the guard " << uu_unregister_window(start) << std::endl; /* -ENOENT */
    std::cout << (seen.is_complete() ? "complete\n" : "not complete\n") << seen.text();
    return seen.is_complete() ? 0 : 1;
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 2;
}
