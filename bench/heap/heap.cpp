// Allocates much: trees of small nodes, a map of strings and vectors. Prints the CPU time that it has used, in seconds.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <vector>

struct Node {
    std::unique_ptr<Node> left, right;
    int value[3];
};

static std::unique_ptr<Node> tree(int depth) {
    auto node = std::make_unique<Node>();
    if (depth)
        node->left = tree(depth - 1), node->right = tree(depth - 1);
    return node;
}

static size_t words() {
    std::map<std::string, std::vector<int>> numbers;
    for (int i = 0; i < 20000; i++)
        numbers["a key of more than sixteen bytes " + std::to_string(i * 7919 % 10007)].push_back(i);
    return numbers.size();
}

int main(int, char **argv) {
    size_t sum = 0;
    for (long round = atol(argv[1]); round > 0; round--) {
        auto whole = tree(15);
        sum += words() + (whole->left != nullptr);
    }
    rusage used;
    getrusage(RUSAGE_SELF, &used);
    auto seconds = [](timeval time) { return time.tv_sec + time.tv_usec / 1e6; };
    printf("%zu %.6f\n", sum, seconds(used.ru_utime) + seconds(used.ru_stime));
}
