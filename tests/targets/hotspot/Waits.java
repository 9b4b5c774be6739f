// Threads that are looked at from outside: one waits, one works.

public class Waits {
    static volatile long sink;

    static void waits() {
        synchronized (Waits.class) {
            while (true) {
                try {
                    Waits.class.wait();
                } catch (InterruptedException e) {
                    return;
                }
            }
        }
    }

    static long work(long n) {
        long sum = 0;
        for (long i = 0; i < n; i++) {
            sum += i * sum ^ i;
        }
        return sum;
    }

    static void works() {
        while (true) {
            sink += work(100_000);
        }
    }

    static void start(String name, Runnable body) {
        Thread thread = new Thread(body, name);
        thread.setDaemon(true);
        thread.start();
    }

    public static void main(String[] arguments) throws Exception {
        start("waits", Waits::waits);
        start("works", Waits::works);
        Thread.sleep(1000);
        System.out.println("ready");
        System.in.read();
    }
}
