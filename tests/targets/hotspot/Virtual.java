// Stacks of virtual threads at known points, as Places has them. A thread that has slept goes on with a part of its
// frames: the others are in the heap, until it returns to them. The methods of virtual threads are called by reflection,
// so that an older JDK's compiler does.

import java.io.FileWriter;
import java.io.PrintWriter;
import java.util.EnumSet;

public class Virtual {
    static final StackWalker WALKER = StackWalker.getInstance(EnumSet.of(
        StackWalker.Option.RETAIN_CLASS_REFERENCE, StackWalker.Option.SHOW_HIDDEN_FRAMES));
    static PrintWriter oracle;

    // The sampling signal, sent to oneself.
    static native void sample();

    static void cap() {
        WALKER.forEach(f -> oracle.println(f.getClassName() + "." + f.getMethodName() + "\t" + f.getFileName() + "\t"
            + Math.max(f.getLineNumber(), 0)));
        oracle.println();
        oracle.flush();
        sample();
    }

    static void sleep() {
        try {
            Thread.sleep(5);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static int deep(int n, boolean sleeps, long a, long b, long c) {
        if (n == 0) {
            cap();
            if (sleeps) {
                sleep();
                cap();
            }
            return 0;
        }
        int sum = deep(n - 1, sleeps, a + 1, b + 2, c + 3);
        if (n % 8 == 0) {
            cap();
        }
        return sum + (int) (a + b + c);
    }

    static void run(boolean sleeps, int depth) {
        deep(depth, sleeps, 1, 2, 3);
    }

    static void virtual(Runnable body) throws Exception {
        Thread thread = (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, body);
        thread.join();
    }

    public static void main(String[] arguments) throws Exception {
        System.load(System.getenv("UU_TEST_CAP"));
        // The recorder looks at the JVM's file meanwhile.
        Thread.sleep(2000);
        try (PrintWriter writer = new PrintWriter(new FileWriter(System.getenv("UU_TEST_ORACLE")))) {
            oracle = writer;
            for (int i = 0; i < 3; i++) {
                virtual(() -> run(false, 3));
                virtual(() -> run(true, 3));
                virtual(() -> run(true, 60));
            }
        }
    }
}
