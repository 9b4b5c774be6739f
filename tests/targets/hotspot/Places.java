// Stacks at known points: each is written down as the runtime has it, a frame a line, and then sampled.

import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.function.IntSupplier;
import java.util.stream.IntStream;

public class Places {
    static PrintWriter oracle;
    static int sink;

    // The sampling signal, sent to oneself.
    static native void sample();

    // Calls a static method of this class without arguments, by JNI.
    static native void back(String name);

    public static void cap() {
        for (StackTraceElement f : new Throwable().getStackTrace()) {
            oracle.println(f.getClassName() + "." + f.getMethodName() + "\t" + f.getFileName() + "\t"
                + Math.max(f.getLineNumber(), 0));
        }
        oracle.println();
        oracle.flush();
        sample();
    }

    interface Shape {
        int area();

        default int twice() {
            return 2 * area();
        }
    }

    static class Square implements Shape {
        public int area() {
            cap();
            return 1;
        }
    }

    static class Circle implements Shape {
        public int area() {
            cap();
            return 3;
        }
    }

    static class Made {
        static final int VALUE;

        static {
            cap();
            VALUE = 1;
        }

        final int field;

        Made(int n) {
            field = n;
            cap();
        }

        synchronized int locked() {
            synchronized (Places.class) {
                cap();
            }
            return VALUE;
        }

        @Override
        public String toString() {
            cap();
            return "made";
        }
    }

    static void recursive(int n) {
        if (n == 0) {
            cap();
        } else {
            recursive(n - 1);
        }
    }

    static void many(int a, long b, double c, Object d, int e, int f, long g, int h, int i, int j, double k) {
        if (a + b + c + e + f + g + h + i + j + k > 0 && d != null) {
            cap();
        }
    }

    static void thrower(int n) {
        if (n == 0) {
            throw new IllegalStateException("thrown");
        }
        thrower(n - 1);
    }

    static void catcher() {
        try {
            thrower(5);
        } catch (IllegalStateException e) {
            cap();
        } finally {
            cap();
        }
    }

    static void replaced() {
        int sum = 0;
        for (int i = 0; i < 60_000; i++) {
            sum += i ^ sum >>> 3;
            if (i == 59_000) {
                cap();
            }
        }
        sink += sum;
    }

    static void calledBack() {
        cap();
    }

    static void there(int n) {
        back(n == 0 ? "calledBack" : "again");
    }

    static void again() {
        there(0);
    }

    public static int reflected(int n) {
        cap();
        return n;
    }

    // Is loaded under many names, by loaders that die.
    public static class Gen00000 implements Runnable {
        public void run() {
            cap();
        }
    }

    static class Dying extends ClassLoader {
        Class<?> define(String name, byte[] bytes) {
            return defineClass(name, bytes, 0, bytes.length);
        }
    }

    // Methods of classes that are unloaded: others take their places.
    static void generations(int round) throws Throwable {
        byte[] template = Files.readAllBytes(Paths.get(Places.class.getResource("Places$Gen00000.class").toURI()));
        String text = new String(template, StandardCharsets.ISO_8859_1);
        for (int i = 0; i < 24; i++) {
            String number = String.format("%05d", 1 + round * 100 + i);
            byte[] bytes = text.replace("Gen00000", "Gen" + number).getBytes(StandardCharsets.ISO_8859_1);
            Class<?> made = new Dying().define("Places$Gen" + number, bytes);
            ((Runnable) made.getDeclaredConstructor().newInstance()).run();
            if (i % 6 == 5) {
                System.gc();
            }
        }
    }

    static void all() throws Throwable {
        cap();
        recursive(20);
        many(1, 2, 3, "d", 5, 6, 7, 8, 9, 10, 11);
        for (Shape shape : new Shape[] {new Square(), new Circle(), () -> {
            cap();
            return 4;
        }}) {
            sink += shape.twice();
        }
        Made made = new Made(3);
        sink += made.locked();
        sink += ("concatenated " + made).length();
        catcher();
        replaced();
        IntSupplier lambda = () -> {
            cap();
            return 1;
        };
        sink += lambda.getAsInt();
        sink += IntStream.range(0, 3).map(n -> {
            if (n == 1) {
                cap();
            }
            return n;
        }).sum();
        Integer[] numbers = {3, 1, 2};
        Arrays.sort(numbers, (a, b) -> {
            if (a + b == 3) {
                cap();
            }
            return a - b;
        });
        Method method = Places.class.getMethod("reflected", int.class);
        sink += (Integer) method.invoke(null, 7);
        MethodHandle handle = MethodHandles.lookup().findStatic(
            Places.class, "reflected", MethodType.methodType(int.class, int.class));
        sink += (int) handle.invokeExact(8);
        Runnable proxy = (Runnable) Proxy.newProxyInstance(Places.class.getClassLoader(),
            new Class<?>[] {Runnable.class}, (self, called, arguments) -> {
                cap();
                return null;
            });
        proxy.run();
        there(2);
        Callable<Integer> call = new Callable<Integer>() {
            public Integer call() {
                List<Integer> list = new ArrayList<>(Arrays.asList(1));
                list.forEach(n -> cap());
                return 1;
            }
        };
        sink += call.call();
    }

    public static void main(String[] arguments) throws Throwable {
        System.load(System.getenv("UU_TEST_CAP"));
        // The recorder looks at the JVM's file meanwhile.
        Thread.sleep(2000);
        try (PrintWriter writer = new PrintWriter(new FileWriter(System.getenv("UU_TEST_ORACLE")))) {
            oracle = writer;
            for (int i = 0; i < 3; i++) {
                all();
                generations(i);
            }
            Thread thread = new Thread(() -> recursive(3), "other");
            thread.start();
            thread.join();
        }
    }
}
