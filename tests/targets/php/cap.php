<?php
// cap: writes down the runtime's own view of the stack, then takes a sample of the calling thread.
//
// The oracle is one line of JSON a sample, in the file $UU_TEST_ORACLE:
//   pid, tid   who takes the sample
//   frames     [name with class, path, line], innermost first: debug_backtrace(); functions in C have the path
//              <internal> and no line
//
// The sample is taken through FFI, so that no header of PHP is needed.

final class Capture
{
    // What runs a file or a text.
    public const FILES = [
        'include' => '{include}', 'include_once' => '{include}',
        'require' => '{include}', 'require_once' => '{include}',
        'eval' => '{eval}',
    ];
    public static FFI $library;
}

Capture::$library = FFI::cdef('void cap(void);', getenv('UU_TEST_CAP'));

function cap(): void
{
    $names = [];
    $places = [];
    foreach (debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS) as $entry) {
        $name = Capture::FILES[$entry['function']] ?? $entry['function'];
        // A class without a name has its place after a NUL.
        $class = isset($entry['class']) ? explode("\0", $entry['class'])[0] . '::' : '';
        $names[] = $class . $name;
        // Where the function was called: the place of the function around it, which is in C if there is none.
        $places[] = isset($entry['file']) ? [$entry['file'], $entry['line']] : null;
    }
    // What PHP code has called the outermost one is the program.
    if (end($places) !== null) {
        $names[] = '{main}';
    }
    $frames = [];
    foreach (array_slice($names, 1) as $at => $name) {
        $frames[] = array_merge([$name], $places[$at] ?? ['<internal>', 0]);
    }
    $line = ['pid' => getmypid(), 'tid' => getmypid(), 'frames' => $frames];
    file_put_contents(getenv('UU_TEST_ORACLE'), json_encode($line) . "\n", FILE_APPEND);
    Capture::$library->cap();
}
