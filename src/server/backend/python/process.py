# SPDX-License-Identifier: Apache-2.0
"""The program of a model's process: loads model.py, and runs what the server sends over descriptor 3. message.h describes the messages.

The server starts it with UTILS_SOURCE, the text of model_interface.py, among its globals. Any thread of the model's may send; of
those that wait for an answer, one reads what comes for all of them.
"""
import array
import asyncio
import collections
import ctypes
import fcntl
import importlib.util
import inspect
import json
import mmap
import os
import socket
import struct
import sys
import threading
import traceback
import types
import weakref

CONNECTION_FD = 3
INITIALIZE, EXECUTE, FINALIZE, COMPLETE, CALL_RESULT, ANSWER, FORGET = 1, 2, 3, 4, 5, 6, 7
DONE, RESPONSE, CALL, ASK, LOG, RELEASE = 20, 21, 22, 23, 24, 40
MAX_INLINE = 16 << 10
MAX_RELEASED = 6
ASK_CANCELLED, ASK_READY = 0, 1
HEAD = struct.Struct("<IIQQQII6I")
SMALLEST_BLOCK = 64 << 10
MAX_FREE_BYTES = 256 << 20
F_ADD_SEALS, SEALS = 1033, 1 | 2 | 4  # sealed: neither smaller nor larger, nor other seals

U32, U64, I64, F64 = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<q"), struct.Struct("<d")


def align(size):
    return (size + 63) & ~63


class Blocks:
    """The blocks that this process writes: used again when the server has released them."""

    def __init__(self):
        self._free = []  # (size, id, mapping), the longest unused first
        self._used = {}
        self._next = 1
        self._free_bytes = 0

    def take(self, size):
        """Its id, the mapping and, for a new one, the descriptor to send."""
        step = max((1 << (size.bit_length() - 1)) // 8, SMALLEST_BLOCK)
        rounded = (size + step - 1) // step * step
        best = None
        for index, (present, _, _) in enumerate(self._free):
            if present >= rounded and present // 4 <= rounded and (best is None or present < self._free[best][0]):
                best = index
        if best is not None:
            entry = self._free.pop(best)
            self._free_bytes -= entry[0]
            self._used[entry[1]] = entry
            return entry[1], entry[2], -1
        fd = os.memfd_create("flywheel-python", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, rounded)
        fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
        mapping = mmap.mmap(fd, rounded)
        entry = (rounded, self._next, mapping)
        self._next += 1
        self._used[entry[1]] = entry
        return entry[1], mapping, fd

    def give_back(self, identifier):
        """The ids of blocks that are given up for it."""
        entry = self._used.pop(identifier, None)
        if entry is None:
            return []
        self._free.append(entry)
        self._free_bytes += entry[0]
        forgotten = []
        while self._free_bytes > MAX_FREE_BYTES:
            size, old, mapping = self._free.pop(0)
            self._free_bytes -= size
            mapping.close()
            forgotten.append(old)
        return forgotten


class Slot:
    """Where an answer, or several, arrives."""

    def __init__(self):
        self.messages = collections.deque()


class Connection:
    """The messages, out and in."""

    def __init__(self, utils):
        self._utils = utils
        self._socket = socket.socket(fileno=CONNECTION_FD)
        self._socket.set_inheritable(False)
        self._write_lock = threading.RLock()
        self._blocks = Blocks()
        self._received = {}
        self._releases = collections.deque()  # appended to by finalizers, at any point of any thread
        self._changed = threading.Condition()
        self._reading = False
        self._slots = {}
        self._next_id = 1
        self._work = Slot()
        self._slots[0] = self._work
        self._threads = None

    # -- Out.

    def send(self, kind, identifier, meta, data=(), data_bytes=0):
        """`data`: (offset, bytes) within the data."""
        begin = align(len(meta))
        body_bytes = begin + data_bytes
        with self._write_lock:
            released = [self._releases.popleft() for _ in range(min(len(self._releases), MAX_RELEASED))]
            released += [0] * (MAX_RELEASED - len(released))
            if body_bytes <= MAX_INLINE:
                packet = bytearray(HEAD.size + body_bytes)
                HEAD.pack_into(packet, 0, kind, 0, identifier, len(meta), body_bytes, 0, 0, *released)
                packet[HEAD.size:HEAD.size + len(meta)] = meta
                for offset, content in data:
                    at = HEAD.size + begin + offset
                    packet[at:at + len(content)] = content
                self._socket.send(packet)
                return
            self._read_what_is_there()
            block, mapping, fd = self._blocks.take(body_bytes)
            mapping[:len(meta)] = meta
            for offset, content in data:
                at = begin + offset
                mapping[at:at + len(content)] = content
            head = HEAD.pack(kind, block, identifier, len(meta), body_bytes, int(fd >= 0), 0, *released)
            if fd < 0:
                self._socket.send(head)
                return
            self._socket.sendmsg([head], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
            os.close(fd)

    # -- In.

    def _read(self, flags=0):
        """One message, given to whom it is for. The caller has the right to read."""
        packet = bytearray(HEAD.size + MAX_INLINE)
        size, control, _, _ = self._socket.recvmsg_into([packet], socket.CMSG_SPACE(4), flags)
        if size == 0:
            os._exit(0)  # the server is gone, or done with this process
        kind, block, identifier, meta_bytes, body_bytes, is_new, _, *released = HEAD.unpack_from(packet)
        for level, control_kind, content in control:
            if level == socket.SOL_SOCKET and control_kind == socket.SCM_RIGHTS:
                fd = array.array("i", content)[0]
                if is_new:
                    self._received[block] = mmap.mmap(fd, os.fstat(fd).st_size)
                os.close(fd)
        for old in released:
            if old:
                with self._write_lock:
                    for forgotten in self._blocks.give_back(old):
                        self.send(FORGET, forgotten, b"")
        if kind == FORGET:
            self._received.pop(identifier, None)
            return
        if kind == RELEASE:
            return
        if block == 0:
            meta = bytes(packet[HEAD.size:HEAD.size + meta_bytes])
            buffer, begin = packet, HEAD.size + align(meta_bytes)
        else:
            # The block is the server's again when nothing refers to this object any more.
            buffer = (ctypes.c_char * body_bytes).from_buffer(self._received[block])
            weakref.finalize(buffer, self._releases.append, block).atexit = False
            meta = bytes(memoryview(buffer)[:meta_bytes])
            begin = align(meta_bytes)
        message = (kind, identifier, json.loads(meta.decode("utf-8", "surrogateescape")) if meta else None, buffer, begin)
        slot = self._slots.get(identifier) if kind in (CALL_RESULT, ANSWER) else self._work
        if slot is not None:
            slot.messages.append(message)

    def _read_what_is_there(self):
        if not self._changed.acquire(blocking=False):
            return
        try:
            if self._reading:
                return
            self._reading = True
        finally:
            self._changed.release()
        try:
            while True:
                self._read(socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        finally:
            with self._changed:
                self._reading = False
                self._changed.notify_all()

    def wait(self, slot):
        """The slot's next message."""
        while True:
            with self._changed:
                while not slot.messages and self._reading:
                    self._changed.wait()
                if slot.messages:
                    return slot.messages.popleft()
                self._reading = True
            try:
                self._read()
            finally:
                with self._changed:
                    self._reading = False
                    self._changed.notify_all()

    def next_work(self):
        return self.wait(self._work)

    def open_slot(self):
        with self._changed:
            identifier = self._next_id
            self._next_id += 1
            slot = self._slots[identifier] = Slot()
        return identifier, slot

    def close_slot(self, identifier):
        with self._changed:
            self._slots.pop(identifier, None)

    def threads(self):
        """For what asyncio has to wait for."""
        if self._threads is None:
            import concurrent.futures
            self._threads = concurrent.futures.ThreadPoolExecutor(max_workers=64)
        return self._threads

    # -- What triton_python_backend_utils asks for.

    def send_response(self, token, response, final):
        meta, data, data_bytes = encode_response(response)
        self.send(RESPONSE, token, bytes([int(final), int(response is not None)]) + meta, data, data_bytes)

    def ask(self, what, meta):
        identifier, slot = self.open_slot()
        try:
            self.send(ASK, identifier, bytes([what]) + meta)
            return self.wait(slot)[2]
        finally:
            self.close_slot(identifier)

    def ask_cancelled(self, token):
        return bool(self.ask(ASK_CANCELLED, U64.pack(token)))

    def ask_ready(self, model, version):
        return bool(self.ask(ASK_READY, text(model) + I64.pack(version)))

    def log(self, level, message):
        self.send(LOG, level, text(message[:8192]))

    def _begin_call(self, request, timeout):
        identifier, slot = self.open_slot()
        try:
            correlation = request.correlation_id()
            is_text = isinstance(correlation, str)
            parts = [text(request.model_name()), I64.pack(int(request._model_version)), text(request.request_id()),
                     bytes([int(is_text)]), text(correlation) if is_text else U64.pack(int(correlation)), U32.pack(int(request.flags())),
                     U64.pack(int(request.priority())), U64.pack(int(request.timeout() if timeout is None else timeout)),
                     encode_parameters(request._parameters), U32.pack(len(request.requested_output_names()))]
            parts += [text(name) for name in request.requested_output_names()]
            tensors, data, data_bytes = encode_tensors(request.inputs())
            parts.append(tensors)
            self.send(CALL, identifier, b"".join(parts), data, data_bytes)
        except BaseException:
            self.close_slot(identifier)
            raise
        return identifier, slot

    def _decode_result(self, message):
        _, _, meta, buffer, begin = message
        if meta["error"] is not None:
            return self._utils.InferenceResponse([], self._utils.TritonError(meta["error"][1], meta["error"][0]))
        outputs = [self._utils.Tensor._received(name, number, shape, buffer, begin + offset, size)
                   for name, number, shape, offset, size in meta["outputs"]]
        return self._utils.InferenceResponse(outputs, None, meta["parameters"])

    def call_one(self, request, timeout):
        identifier, slot = self._begin_call(request, timeout)
        try:
            response = None
            while True:
                message = self.wait(slot)
                if not message[2]["empty"]:
                    if response is not None:
                        return self._utils.InferenceResponse([], self._utils.TritonError(
                            f"model '{request.model_name()}' gave more than one response: use exec(decoupled=True)"))
                    response = self._decode_result(message)
                if message[2]["final"]:
                    return response if response is not None else self._utils.InferenceResponse([])
        finally:
            self.close_slot(identifier)

    def call_many(self, request, timeout):
        identifier, slot = self._begin_call(request, timeout)

        def walk():
            try:
                while True:
                    message = self.wait(slot)
                    if not message[2]["empty"]:
                        yield self._decode_result(message)
                    if message[2]["final"]:
                        return
            finally:
                self.close_slot(identifier)
        return walk()


# ----------------------------------------------------------------------------------------------------------------------------------------
# The binary form of what goes to the server.

def text(value):
    encoded = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(value)
    return U32.pack(len(encoded)) + encoded


def encode_parameters(parameters):
    parts = [U32.pack(len(parameters))]
    for key, value in parameters.items():
        parts.append(text(str(key)))
        if isinstance(value, bool):
            parts.append(b"\0" + bytes([value]))
        elif isinstance(value, int):
            parts.append(b"\1" + I64.pack(value))
        elif isinstance(value, float):
            parts.append(b"\2" + F64.pack(value))
        else:
            parts.append(b"\3" + text(str(value)))
    return b"".join(parts)


def encode_tensors(tensors, data=None, data_bytes=0):
    """Descriptions, (offset, bytes) of each, and how far the data goes."""
    data = [] if data is None else data
    parts = [U32.pack(len(tensors))]
    for tensor in tensors:
        content = tensor._to_send()
        shape = tensor.shape()
        parts.append(text(tensor.name()))
        parts.append(struct.pack(f"<BI{len(shape)}qQQ", tensor.triton_dtype(), len(shape), *shape, data_bytes, len(content)))
        data.append((data_bytes, content))
        data_bytes += align(len(content))
    return b"".join(parts), data, data_bytes


def encode_response(response, data=None, data_bytes=0):
    data = [] if data is None else data
    if response is None:
        return b"", data, data_bytes
    if response.has_error():
        return b"\1" + U32.pack(response.error().code()) + text(response.error().message()), data, data_bytes
    tensors, data, data_bytes = encode_tensors(response.output_tensors(), data, data_bytes)
    return b"\0" + encode_parameters(response._parameters or {}) + tensors, data, data_bytes


def describe_exception(error):
    """Its type and text, and where it was raised: the model's own lines, the innermost first."""
    message = f"{type(error).__name__}: {error}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != "<flywheel>"]
    if isinstance(error, SyntaxError) and error.filename:
        message += f"\n\nAt:\n  {error.filename}({error.lineno})"
    elif frames:
        message += "\n\nAt:" + "".join(f"\n  {frame.filename}({frame.lineno}): {frame.name}" for frame in reversed(frames[-32:]))
    return message[:8192]


# ----------------------------------------------------------------------------------------------------------------------------------------
# The model.

class Server:
    """Does what the server asks."""

    def __init__(self, utils, connection):
        self._utils = utils
        self._connection = connection
        self._class = None
        self._model = None
        self._decoupled = False
        self._loop = None

    def run(self):
        while True:
            # Nothing here keeps the message: its memory is the server's again with the answer, if the model keeps nothing of it.
            message = [self._connection.next_work()]
            kind, identifier = message[0][:2]
            try:
                meta, data, data_bytes = self._do(message)
                self._connection.send(DONE, identifier, b"\0" + meta, data, data_bytes)
            except Exception as error:  # pylint: disable=broad-except
                self._connection.send(DONE, identifier, b"\1" + text(describe_exception(error)))
            meta = data = None
            if kind == FINALIZE:
                return

    def _do(self, message):
        kind, _, meta, buffer, begin = message.pop()
        if kind == EXECUTE:
            return self._execute(meta, buffer, begin)
        if kind == INITIALIZE:
            return self._initialize(meta)
        if kind == COMPLETE:
            return self._complete(meta)
        return self._finalize()

    def _load(self, meta):
        path = meta["path"]
        folder = os.path.dirname(path)
        self._utils._model_folder = folder
        sys.path[:0] = [folder, meta["model_folder"]]
        name = os.path.splitext(os.path.basename(path))[0]
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        self._class = getattr(module, "TritonPythonModel", None)
        if self._class is None:
            raise AttributeError(f"'{path}' has no class TritonPythonModel")

    def _complete(self, meta):
        self._load(meta)
        function = getattr(self._class, "auto_complete_config", None)
        config = self._utils.ModelConfig(meta["config"])
        if function is not None:
            config = function(config)
            if config is None:
                raise ValueError("auto_complete_config must return the configuration that it was given")
        return text(json.dumps(config.as_dict())), (), 0

    def _initialize(self, meta):
        self._load(meta)
        self._decoupled = meta["decoupled"]
        if not callable(getattr(self._class, "execute", None)):
            raise AttributeError(f"'{meta['path']}': class TritonPythonModel has no function execute")
        self._model = self._class()
        initialize = getattr(self._model, "initialize", None)
        if initialize is not None:
            self._settle(initialize(meta["args"]))
        return b"", (), 0

    def _finalize(self):
        finalize = getattr(self._model, "finalize", None)
        if finalize is not None:
            self._settle(finalize())
        return b"", (), 0

    def _settle(self, result):
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    def _settle_execute(self, result):
        if not inspect.iscoroutine(result):
            return result
        if not self._decoupled:
            return asyncio.run(result)
        # Goes on beside the next batches.
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(result, self._loop)
        future.add_done_callback(self._report)
        return None

    def _report(self, future):
        error = future.exception()
        if error is not None:
            self._connection.log(2, "execute ended with " + describe_exception(error))

    def _make_request(self, description, buffer, begin):
        make = self._utils.Tensor._received
        inputs = [make(name, number, shape, buffer, begin + offset, size) for name, number, shape, offset, size in description["inputs"]]
        request = self._utils.InferenceRequest(
            request_id=description["id"], correlation_id=description["correlation_id"], inputs=inputs,
            requested_output_names=description["outputs"], flags=description["flags"], timeout=description["timeout"],
            parameters=description["parameters"], priority=description["priority"])
        request._token = description["token"]
        request._decoupled = self._decoupled
        return request

    def _execute(self, meta, buffer, begin):
        requests = [self._make_request(description, buffer, begin) for description in meta]
        responses = self._settle_execute(self._model.execute(requests))
        if responses is None:
            if not self._decoupled and any(request._sender is None for request in requests):
                raise self._utils.TritonModelException(
                    "execute must return a list of responses, one for each request; it returned None")
            responses = [None] * len(requests)
        elif self._decoupled:
            raise self._utils.TritonModelException(
                "execute of a decoupled model must return None: responses are given with request.get_response_sender()")
        if not isinstance(responses, (list, tuple)):
            raise self._utils.TritonModelException(f"execute must return a list of responses, not {type(responses).__name__}")
        if len(responses) != len(requests):
            raise self._utils.TritonModelException(
                f"Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                f"InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(responses)}")
        parts = [U32.pack(len(requests))]
        data, data_bytes = [], 0
        for request, response in zip(requests, responses):
            if response is None:
                if not self._decoupled and request._sender is None:
                    raise self._utils.TritonModelException(
                        "execute returned None for a request whose response sender it did not take")
                parts.append(b"\2")
                continue
            if not isinstance(response, self._utils.InferenceResponse):
                raise self._utils.TritonModelException(f"execute must return InferenceResponses, not {type(response).__name__}")
            encoded, data, data_bytes = encode_response(response, data, data_bytes)
            parts.append(encoded)
        return b"".join(parts), data, data_bytes


def main():
    connection = Connection(None)
    name = "triton_python_backend_utils"
    utils = types.ModuleType(name)
    utils.__file__ = "<flywheel>"
    sys.modules[name] = utils
    try:
        exec(compile(UTILS_SOURCE, "<flywheel>", "exec"), utils.__dict__)  # pylint: disable=undefined-variable,exec-used
    except ImportError as error:
        kind, identifier, *_ = connection.next_work()
        del kind
        connection.send(DONE, identifier, b"\1" + text(f"{error}: a Python model needs numpy in its environment ({sys.executable})"))
        os._exit(0)
    utils._connection = connection
    connection._utils = utils
    Server(utils, connection).run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that the model has left running are not waited for.
    os._exit(0)


main()
