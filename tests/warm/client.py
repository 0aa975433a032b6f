# The program that stands for an interpreter. It imports modules of C only, and so starts in 10 ms.
import _signal
import _socket
import posix
import sys

PYTHON, SERVER = "", ""  # written in where a copy of this file is made


def environment():
    return posix.environ


def asks_for_a_fresh_one(arguments):
    if not arguments or environment().get(b"OMP_NUM_THREADS") != b"1":
        return True
    if arguments[0] == "-m":
        return len(arguments) < 2 or arguments[1].partition(".")[0] != "steadytrain"
    return arguments[0].startswith("-") or "site-packages" in arguments[0]


def fresh(arguments):
    posix.execve(PYTHON, [PYTHON, *arguments], environment())


def open_files():
    found = []
    for name in posix.listdir("/proc/self/fd"):
        number = int(name)
        try:
            if number < 3 or posix.get_inheritable(number):
                posix.fstat(number)
                found.append(number)
        except OSError:
            pass
    return sorted(found)


def main(arguments):
    if asks_for_a_fresh_one(arguments):
        fresh(arguments)
    files = open_files()
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        line.connect(SERVER)
    except OSError:
        fresh(arguments)
    parts = [
        str(len(arguments)).encode(),
        ",".join(map(str, files)).encode(),
        ",".join(map(str, posix.sched_getaffinity(0))).encode(),
        posix.getcwdb(),
        *(argument.encode("utf-8", "surrogateescape") for argument in arguments),
        *(name + b"=" + value for name, value in environment().items()),
    ]
    message = b"\0".join(parts)
    numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in files)
    line.sendmsg([len(message).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    line.sendall(message)
    told = b""
    process = 0
    early = []  # signals that came before the server said which process it is: the script may run before that is read

    def forward(signal, frame):
        if not process:
            early.append(signal)
            return
        try:  # noqa: SIM105 -- contextlib takes as long to import as all the rest
            posix.kill(process, signal)
        except ProcessLookupError:
            pass

    for signal in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGCONT):
        if _signal.getsignal(signal) != _signal.SIG_IGN:
            _signal.signal(signal, forward)
    status = None
    while status is None:
        some = line.recv(100)
        if not some:
            posix.write(2, b"the server of warm processes is gone\n")
            posix._exit(255)
        told += some
        while b"\n" in told:
            entry, _, told = told.partition(b"\n")
            kind, number = entry.split()
            if kind == b"fresh":
                line.close()
                fresh(arguments)
            elif kind == b"process":
                process = int(number)
                while early:
                    forward(early.pop(0), None)
            else:
                status = int(number)
    if status < 0:
        if -status in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2):
            _signal.signal(-status, _signal.SIG_DFL)
        posix.kill(posix.getpid(), -status)
    posix._exit(status)


main(sys.argv[1:])
