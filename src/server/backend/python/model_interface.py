# SPDX-License-Identifier: Apache-2.0
"""What a model.py imports: tensors, requests, responses and their like, with the names and the behaviour of Triton's.

Runs in a model's process. process.py makes it a module before it imports the model, and sets `_connection`, through which everything here
that needs the server goes.
"""
import ctypes
import json
import struct

import numpy as np

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2

# By the number on the wire: names of the configuration, names of the protocols, numpy's types, bytes an element.
_NAMES = ["INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "STRING",
          "BF16"]
_NUMPY = [None, np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32,
          np.float64, np.object_, None]
_STRING = 13
_BF16 = 14
_NUMBERS = {np.dtype(kind): number for number, kind in enumerate(_NUMPY) if kind is not None}
_DTYPES = [None if kind is None else np.dtype(kind) for kind in _NUMPY]

_connection = None  # set by process.py
_model_folder = ""  # likewise


class TritonModelException(Exception):
    """What this module raises."""


class TritonError:
    """Why there is no response."""
    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __init__(self, message, code=INTERNAL):
        self._message = str(message)
        self._code = int(code)

    def message(self):
        return self._message

    def code(self):
        return self._code

    def __str__(self):
        return self._message


# ----------------------------------------------------------------------------------------------------------------------------------------
# Types.

def triton_string_to_numpy(triton_type_string):
    """TYPE_FP32: np.float32."""
    name = triton_type_string.removeprefix("TYPE_")
    return None if name not in _NAMES else _NUMPY[_NAMES.index(name)]


def triton_to_numpy_type(data_type):
    """The number on the wire: numpy's type."""
    return _NUMPY[data_type]


def numpy_to_triton_type(data_type):
    """numpy's type: the number on the wire."""
    dtype = np.dtype(data_type)
    if dtype.kind in "SU":
        return _STRING
    return _NUMBERS[dtype]


def serialize_byte_tensor(input_tensor):
    """The elements in row-major order, each its length and its bytes: an array of one bytes object."""
    if input_tensor.size == 0:
        return np.empty([0], dtype=np.object_)
    return np.array([_serialize_strings(input_tensor)], dtype=np.object_)


def _serialize_strings(array):
    parts = []
    for element in array.reshape(-1).tolist() if array.dtype.kind in "SU" else array.flat:
        if isinstance(element, str):
            element = element.encode("utf-8")
        elif not isinstance(element, (bytes, bytearray)):
            element = str(element).encode("utf-8")
        parts.append(struct.pack("<I", len(element)))
        parts.append(element)
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor):
    """A flat array of bytes objects."""
    view = memoryview(encoded_tensor)
    elements = []
    at = 0
    while at < len(view):
        size = int.from_bytes(view[at:at + 4], "little")
        elements.append(bytes(view[at + 4:at + 4 + size]))
        at += 4 + size
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array


# ----------------------------------------------------------------------------------------------------------------------------------------
# Tensors.

class _Capsule:
    """A DLPack capsule as an object that numpy takes."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **_):
        return self._capsule

    def __dlpack_device__(self):
        return 1, 0


# Of the structure that a capsule holds: data, device type, device, rank, then the type's code, bits and lanes.
_DLPACK_RANK = 16
_DLPACK_CODE = 20
_DLPACK_BITS = 21
_DLPACK_UINT = 1
_DLPACK_BFLOAT = 4
_get_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_capsule_pointer.restype = ctypes.c_void_p
_get_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _type_code(capsule):
    address = _get_capsule_pointer(capsule, b"dltensor")
    return ctypes.c_uint8.from_address(address + _DLPACK_CODE), ctypes.c_uint8.from_address(address + _DLPACK_BITS)


class Tensor:
    """A named array. Strings are object arrays of bytes; BF16 can only go through DLPack, as numpy has no such type."""
    __slots__ = ("_name", "_number", "_array", "_shape", "_encoded")

    def __init__(self, name, numpy_array):
        if not isinstance(numpy_array, np.ndarray):
            raise TritonModelException(f"tensor '{name}' must be a numpy array, not {type(numpy_array).__name__}")
        kind = numpy_array.dtype.kind
        if kind in "SUO":
            self._number = _STRING
        else:
            number = _NUMBERS.get(numpy_array.dtype.newbyteorder("="))
            if number is None:
                raise TritonModelException(f"tensor '{name}' has the type {numpy_array.dtype}, which the server does not have")
            self._number = number
        self._name = name
        self._array = numpy_array
        self._shape = None
        self._encoded = None

    @classmethod
    def _received(cls, name, number, shape, buffer, offset, size):
        tensor = cls.__new__(cls)
        tensor._name = name
        tensor._number = number
        tensor._shape = shape
        tensor._array = None
        tensor._encoded = None
        if number == _STRING:
            tensor._encoded = (buffer, offset, size)
        elif size == 0:
            tensor._array = np.empty(shape, dtype=np.uint16 if number == _BF16 else _DTYPES[number])
        else:
            dtype = np.dtype(np.uint16) if number == _BF16 else _DTYPES[number]
            tensor._array = np.frombuffer(buffer, dtype, size // dtype.itemsize, offset).reshape(shape)
        return tensor

    def name(self):
        return self._name

    def as_numpy(self):
        if self._number == _BF16:
            raise TritonModelException(f"tensor '{self._name}' is BF16, which numpy does not have: use to_dlpack()")
        if self._array is None:
            buffer, offset, size = self._encoded
            array = deserialize_bytes_tensor(memoryview(buffer).cast("B")[offset:offset + size])
            self._array = array.reshape(self._shape)
        return self._array

    def triton_dtype(self):
        return self._number

    def shape(self):
        return list(self._shape if self._array is None else self._array.shape)

    def is_cpu(self):
        return True

    def to_dlpack(self):
        return self.__dlpack__()

    def __dlpack__(self, **_):
        if self._number == _STRING:
            raise TritonModelException("DLPack does not have support for string tensors.")
        capsule = self._array.__dlpack__()
        if self._number == _BF16:
            _type_code(capsule)[0].value = _DLPACK_BFLOAT
        return capsule

    def __dlpack_device__(self):
        return 1, 0

    @staticmethod
    def from_dlpack(name, dlpack):
        if hasattr(dlpack, "__dlpack_device__"):
            device = int(dlpack.__dlpack_device__()[0])
            if device not in (1, 3):
                raise TritonModelException(f"tensor '{name}' is on a device (DLPack's type {device}): move it to the CPU first")
            dlpack = dlpack.__dlpack__()
        code, bits = _type_code(dlpack)
        is_bf16 = code.value == _DLPACK_BFLOAT and bits.value == 16
        if is_bf16:
            code.value = _DLPACK_UINT
        tensor = Tensor(name, np.from_dlpack(_Capsule(dlpack)))
        if is_bf16:
            tensor._number = _BF16
        return tensor

    def _to_send(self):
        """The elements as the server takes them."""
        array = self._array
        if self._number == _STRING:
            if array is None:
                buffer, offset, size = self._encoded
                return memoryview(buffer).cast("B")[offset:offset + size]
            return _serialize_strings(array)
        if array.size == 0:
            return b""
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        return memoryview(array.reshape(-1).view(np.uint8))


# ----------------------------------------------------------------------------------------------------------------------------------------
# Responses.

class InferenceResponse:
    """Outputs, or an error."""
    __slots__ = ("_outputs", "_error", "_parameters")

    def __init__(self, output_tensors=None, error=None, parameters=None):
        self._outputs = [] if output_tensors is None else list(output_tensors)
        self._parameters = parameters
        if error is not None and not isinstance(error, TritonError):
            error = TritonError(error)
        self._error = error
        for tensor in self._outputs:
            if not isinstance(tensor, Tensor):
                raise TritonModelException(f"an InferenceResponse takes Tensors, not {type(tensor).__name__}")
        if parameters is not None and not isinstance(parameters, dict):
            raise TritonModelException("an InferenceResponse takes a dict as its parameters")

    def output_tensors(self):
        return self._outputs

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def parameters(self):
        return json.dumps(self._parameters or {})


class InferenceResponseSender:
    """Gives the responses of one request, at any time and from any thread."""

    def __init__(self, token, decoupled):
        self._token = token
        self._decoupled = decoupled
        self._kept = None
        self._closed = False

    def send(self, response=None, flags=0):
        if self._closed:
            raise TritonModelException(
                "Unable to send response. Response sender has been closed.")
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException(
                "Unable to send response. Unsupported flag provided. Supported flags are 0 and TRITONSERVER_RESPONSE_COMPLETE_FINAL")
        if response is None and flags == 0:
            raise TritonModelException("Inference Response object must be provided when the response flags is set to zero.")
        final = flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
        if not self._decoupled:
            # Exactly one, which goes out when it is known to be the last.
            if response is not None and self._kept is not None:
                raise TritonModelException("Unable to send response. Non-decoupled model cannot send more than one response.")
            self._kept = response = self._kept if response is None else response
            if not final:
                return
            if response is None:
                raise TritonModelException("Unable to send response. Non-decoupled model cannot send complete final before sending a response.")
        if final:
            self._closed = True
        _connection.send_response(self._token, response, final)

    def is_cancelled(self):
        return _connection.ask_cancelled(self._token)


# ----------------------------------------------------------------------------------------------------------------------------------------
# Requests, received and made.

class PreferredMemory:
    """Where a called model should put its outputs: there is only the CPU's memory."""

    def __init__(self, preferred_memory_type=0, preferred_device_id=0):
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


TRITONSERVER_MEMORY_CPU = 0
TRITONSERVER_MEMORY_CPU_PINNED = 1
TRITONSERVER_MEMORY_GPU = 2


class InferenceRequest:
    """What a client asks of this model; or, made here, what this model asks of another."""

    def __init__(self, request_id="", correlation_id=0, inputs=(), requested_output_names=(), model_name="", model_version=-1, flags=0,
                 timeout=0, preferred_memory=None, trace=None, parameters=None, priority=0):
        del preferred_memory, trace
        self._id = request_id
        self._correlation_id = correlation_id
        self._inputs = list(inputs)
        self._outputs = list(requested_output_names)
        self._model_name = model_name
        self._model_version = model_version
        self._flags = flags
        self._timeout = timeout
        self._parameters = {} if parameters is None else parameters
        self._priority = priority
        self._token = None
        self._sender = None
        self._decoupled = False
        if not isinstance(self._parameters, dict):
            raise TritonModelException("an InferenceRequest takes a dict as its parameters")

    def inputs(self):
        return self._inputs

    def request_id(self):
        return self._id

    def correlation_id(self):
        return self._correlation_id

    def requested_output_names(self):
        return self._outputs

    def model_name(self):
        return self._model_name

    def flags(self):
        return self._flags

    def set_flags(self, flags):
        self._flags = flags

    def timeout(self):
        return self._timeout

    def priority(self):
        return self._priority

    def parameters(self):
        return json.dumps(self._parameters)

    def preferred_memory(self):
        return PreferredMemory()

    def trace(self):
        return None

    def is_cancelled(self):
        return self._token is not None and _connection.ask_cancelled(self._token)

    def get_response_sender(self):
        if self._token is None:
            raise TritonModelException("only a request that this model was sent has a response sender")
        if self._sender is None:
            self._sender = InferenceResponseSender(self._token, self._decoupled)
        return self._sender

    def set_release_flags(self, flags):
        if flags != TRITONSERVER_REQUEST_RELEASE_ALL:
            raise TritonModelException("requests cannot be rescheduled here: keep what is to be continued in the model's own thread")

    def exec(self, decoupled=False, execution_timeout=None):
        """Asks the model, and waits: for its response, or with decoupled=True for each of its responses."""
        self._check_call()
        if decoupled:
            return _connection.call_many(self, execution_timeout)
        return _connection.call_one(self, execution_timeout)

    async def async_exec(self, decoupled=False, execution_timeout=None):
        import asyncio
        self._check_call()
        loop = asyncio.get_running_loop()
        if not decoupled:
            return await loop.run_in_executor(_connection.threads(), _connection.call_one, self, execution_timeout)
        responses = _connection.call_many(self, execution_timeout)

        async def walk():
            done = object()
            while True:
                response = await loop.run_in_executor(_connection.threads(), next, responses, done)
                if response is done:
                    return
                yield response
        return walk()

    def _check_call(self):
        if not self._model_name:
            raise TritonModelException("model_name must be given in an InferenceRequest that is to be executed")
        for tensor in self._inputs:
            if not isinstance(tensor, Tensor):
                raise TritonModelException(f"an InferenceRequest takes Tensors, not {type(tensor).__name__}")


def get_input_tensor_by_name(inference_request, name):
    for tensor in inference_request.inputs():
        if tensor.name() == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response, name):
    for tensor in inference_response.output_tensors():
        if tensor.name() == name:
            return tensor
    return None


# ----------------------------------------------------------------------------------------------------------------------------------------
# The configuration.

def _config_by_name(model_config, kind, name):
    for properties in model_config.get(kind, []):
        if properties["name"] == name:
            return properties
    return None


def get_input_config_by_name(model_config, name):
    return _config_by_name(model_config, "input", name)


def get_output_config_by_name(model_config, name):
    return _config_by_name(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config):
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def get_model_dir():
    return _model_folder


class ModelConfig:
    """What auto_complete_config is given, and returns with what the configuration's file left out."""

    def __init__(self, model_config):
        self._model_config = json.loads(model_config) if isinstance(model_config, str) else dict(model_config)

    def as_dict(self):
        return self._model_config

    def set_max_batch_size(self, max_batch_size):
        given = self._model_config.get("max_batch_size", 0)
        if given > max_batch_size:
            raise ValueError(f"configuration specified max_batch_size {given}, but in auto-complete-config function for model "
                             f"'{self._model_config['name']}' specified max_batch_size {max_batch_size}")
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        if "sequence_batching" in self._model_config or "ensemble_scheduling" in self._model_config:
            raise ValueError("Configuration specified scheduling_choice as something else than dynamic_batching, which "
                             "auto_complete_config asks for")
        self._model_config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict):
        unknown = set(transaction_policy_dict) - {"decoupled"}
        if unknown:
            raise ValueError(f"model transaction property '{unknown.pop()}' is not known: only 'decoupled' is")
        self._model_config["model_transaction_policy"] = dict(transaction_policy_dict)

    def add_input(self, properties):
        self._add("input", properties, {"name", "data_type", "dims", "optional"})

    def add_output(self, properties):
        self._add("output", properties, {"name", "data_type", "dims"})

    def _add(self, kind, properties, known):
        missing = {"name", "data_type", "dims"} - set(properties)
        if missing:
            raise ValueError(f"{kind} '{properties.get('name', '')}' in auto-complete-config function for model "
                             f"'{self._model_config['name']}' is missing {sorted(missing)[0]} property.")
        unknown = set(properties) - known
        if unknown:
            raise ValueError(f"{kind} '{properties['name']}' in auto-complete-config function for model "
                             f"'{self._model_config['name']}' contains property other than {', '.join(sorted(known))}.")
        for present in self._model_config.setdefault(kind, []):
            if present["name"] != properties["name"]:
                continue
            for key in ("data_type", "dims"):
                if present.get(key) not in (None, [], "", "TYPE_INVALID") and list_or_text(present[key]) != list_or_text(properties[key]):
                    raise ValueError(f"unable to load model '{self._model_config['name']}', configuration expects {key} {present[key]} for "
                                     f"{kind} '{present['name']}', model provides {properties[key]}")
                present[key] = properties[key]
            return
        self._model_config[kind].append(dict(properties))


def list_or_text(value):
    return value if isinstance(value, str) else list(value)


# ----------------------------------------------------------------------------------------------------------------------------------------
# The server.

class LogLevel:
    """Logger.log's second argument."""
    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


class Logger:
    """The server's log."""
    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message, level=LogLevel.INFO):
        _connection.log(int(level), str(message))

    @staticmethod
    def log_info(message):
        _connection.log(LogLevel.INFO, str(message))

    @staticmethod
    def log_warn(message):
        _connection.log(LogLevel.WARNING, str(message))

    @staticmethod
    def log_error(message):
        _connection.log(LogLevel.ERROR, str(message))

    @staticmethod
    def log_verbose(message):
        _connection.log(LogLevel.VERBOSE, str(message))


def is_model_ready(model_name, model_version=""):
    """Whether the server would take a request for it."""
    return _connection.ask_ready(model_name, int(model_version) if model_version else -1)
