// Methods that call each other in one order only, in many ways: a stack has level0, level1 and so on without a gap, from
// main on. What is interrupted is any instruction of theirs, and of what they use.

import java.util.Arrays;
import java.util.function.IntUnaryOperator;

public class Chain {
    static int sink;
    static byte[] bytes = new byte[3000];
    // Rounds after which everything has been compiled that will be.
    static final long WARM = Long.getLong("warm", 20_000);
    static final boolean THROWS = System.getenv("UU_TEST_CALM") == null;

    interface Next {
        int go(int n);
    }

    static final Next[] NEXT = {new A(), new B(), new C(), n -> level4(n)};

    static class A implements Next {
        public int go(int n) {
            return level4(n);
        }
    }

    static class B implements Next {
        public int go(int n) {
            return level4(n + 1);
        }
    }

    static class C extends B {
        @Override
        public int go(int n) {
            return level4(n + 2);
        }
    }

    static native void back(String name);

    static native void work();

    static int level0(int n) {
        int sum = 0;
        for (int i = 0; i < 40; i++) {
            sum += level1(n + i);
        }
        return sum;
    }

    static int level1(int n) {
        int local = level2(n, n * 3L, n / 7.0, n + 1, n + 2, n + 3, n + 4, n + 5);
        return local + 1;
    }

    static int level2(int a, long b, double c, int d, int e, int f, int g, int h) {
        return level3(a + (int) b + (int) c + d + e + f + g + h);
    }

    static int level3(int n) {
        return NEXT[(n & 0x7fffffff) % NEXT.length].go(n);
    }

    static int level4(int n) {
        try {
            return level5(n);
        } catch (IllegalArgumentException e) {
            return n;
        }
    }

    static synchronized int level5(int n) {
        if (n % 97 == 0 && THROWS) {
            throw new IllegalArgumentException();
        }
        IntUnaryOperator operator = x -> level6(x) + n;
        return operator.applyAsInt(n);
    }

    static int level6(int n) {
        if (n % 5 == 0) {
            argument = n;
            back("level7");
            return result;
        }
        level7();
        return n;
    }

    static int argument;
    static int result;

    static void level7() {
        result = level8(argument++ & 15);
    }

    // Recursion: as many frames as its argument says.
    static int level8(int n) {
        return n > 0 ? level8(n - 1) + 1 : level9(n);
    }

    static int level9(int n) {
        int sum = 0;
        for (int i = 0; i < 200; i++) {
            sum += i * n ^ sum >>> 2;
        }
        System.arraycopy(bytes, 0, bytes, 1000, 1000);
        byte[] copy = Arrays.copyOf(bytes, 200);
        sum += new StringBuilder().append(sum).append(copy.length).toString().hashCode();
        sum += Integer.toString(sum).length();
        if (sum % 11 == 0) {
            work();
        }
        return sum;
    }

    public static void main(String[] arguments) {
        System.load(System.getenv("UU_TEST_CAP"));
        long rounds = Long.parseLong(System.getenv("UU_TEST_ROUNDS"));
        for (long i = 0; i < rounds; i++) {
            sink += level0((int) i);
            if (i == WARM) {
                System.out.println("ready");
            }
        }
    }
}
