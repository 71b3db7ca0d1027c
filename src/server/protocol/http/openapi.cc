// SPDX-License-Identifier: Apache-2.0
#include "server/protocol/http/openapi.h"

#include <string>
#include <vector>

#include "server/config/json_writer.h"
#include "server/protocol/http/routes.h"

namespace flywheel::http {
namespace {

// The shapes of bodies. Tensors' elements are left open: their type is the tensor's datatype.
constexpr std::string_view kSchemas = R"({
"Error":{"type":"object","required":["error"],"properties":{"error":{"type":"string"}}},
"Parameters":{"type":"object","additionalProperties":{"oneOf":[{"type":"string"},{"type":"number"},{"type":"boolean"}]}},
"InputTensor":{"type":"object","required":["name","shape","datatype"],"properties":{"name":{"type":"string"},
"shape":{"type":"array","items":{"type":"integer"}},"datatype":{"type":"string"},
"parameters":{"$ref":"#/components/schemas/Parameters"},"data":{"type":"array","items":{}}}},
"RequestedOutput":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},
"parameters":{"$ref":"#/components/schemas/Parameters"}}},
"InferRequest":{"type":"object","required":["inputs"],"properties":{"id":{"type":"string"},
"parameters":{"$ref":"#/components/schemas/Parameters"},
"inputs":{"type":"array","items":{"$ref":"#/components/schemas/InputTensor"}},
"outputs":{"type":"array","items":{"$ref":"#/components/schemas/RequestedOutput"}}}},
"InferResponse":{"type":"object","required":["model_name","outputs"],"properties":{"id":{"type":"string"},
"model_name":{"type":"string"},"model_version":{"type":"string"},
"parameters":{"$ref":"#/components/schemas/Parameters"},
"outputs":{"type":"array","items":{"$ref":"#/components/schemas/InputTensor"}}}},
"Flat":{"type":"object","additionalProperties":true},
"RegisterRequest":{"type":"object","required":["key","byte_size"],"properties":{"key":{"type":"string"},
"offset":{"type":"integer","minimum":0},"byte_size":{"type":"integer","minimum":1}}},
"Regions":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"key":{"type":"string"},
"offset":{"type":"integer"},"byte_size":{"type":"integer"}}}},
"TraceSetting":{"type":"object","properties":{"trace_level":{"type":"array","items":{"type":"string",
"enum":["OFF","TIMESTAMPS","TENSORS"]}},"trace_rate":{"type":"string"},"trace_count":{"type":"string"},
"log_frequency":{"type":"string"},"trace_file":{"type":"string"},"trace_mode":{"type":"string"}}},
"LogSettings":{"type":"object","properties":{"log_file":{"type":"string"},"log_info":{"type":"boolean"},
"log_warning":{"type":"boolean"},"log_error":{"type":"boolean"},"log_verbose_level":{"type":"integer"},
"log_format":{"type":"string","enum":["default","ISO8601"]}}},
"IndexRequest":{"type":"object","properties":{"ready":{"type":"boolean"}}},
"Index":{"type":"array","items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},
"version":{"type":"string"},"state":{"type":"string"},"reason":{"type":"string"}}}},
"ControlRequest":{"type":"object","properties":{"parameters":{"$ref":"#/components/schemas/Parameters"}}}})";

struct Bodies {
  std::string_view request, response;  // names of schemas; empty: none
  std::string_view response_type = "application/json";
};

Bodies bodies_of(Route route) {
  switch (route) {
    case Route::kInfer: return {"InferRequest", "InferResponse"};
    case Route::kGenerate: return {"Flat", "Flat"};
    case Route::kGenerateStream: return {"Flat", "Flat", "text/event-stream"};
    case Route::kTrace:
    case Route::kModelTrace: return {"TraceSetting", "TraceSetting"};
    case Route::kLogging: return {"LogSettings", "LogSettings"};
    case Route::kIndex: return {"IndexRequest", "Index"};
    case Route::kLoad:
    case Route::kUnload: return {"ControlRequest", ""};
    case Route::kSystemMemoryRegister: return {"RegisterRequest", ""};
    case Route::kSystemMemoryStatus:
    case Route::kCudaMemoryStatus: return {"", "Regions"};
    case Route::kLive:
    case Route::kReady:
    case Route::kModelReady:
    case Route::kNamedRepository:
    case Route::kSystemMemoryUnregister:
    case Route::kCudaMemoryRegister:
    case Route::kCudaMemoryUnregister: return {};
    default: return {"", "Flat"};
  }
}

std::string content(std::string_view type, std::string_view schema) {
  return "\"content\":{\"" + std::string(type) + "\":{\"schema\":{\"$ref\":\"#/components/schemas/" +
         std::string(schema) + "\"}}}";
}

void append_operation(std::string& json, const RouteInfo& route, bool post) {
  const Bodies bodies = bodies_of(route.route);
  json += post ? "\"post\":{\"summary\":" : "\"get\":{\"summary\":";
  config::append_json_string(json, route.summary);
  json += ",\"tags\":[";
  config::append_json_string(json, settings::api_category_name(route.category));
  json += "],\"parameters\":[";
  bool first = true;
  for (size_t at = route.pattern.find('{'); at != std::string_view::npos; at = route.pattern.find('{', at + 1)) {
    const std::string_view name = route.pattern.substr(at + 1, route.pattern.find('}', at) - at - 1);
    if (!first) json += ',';
    first = false;
    json += "{\"name\":";
    config::append_json_string(json, name);
    json += ",\"in\":\"path\",\"required\":true,\"schema\":{\"type\":\"";
    json += name == "version" ? "integer\"}}" : "string\"}}";
  }
  json += ']';
  if (post && !bodies.request.empty()) {
    json += ",\"requestBody\":{" + content("application/json", bodies.request) + "}";
  }
  json += ",\"responses\":{\"200\":{\"description\":\"done\"";
  if (!bodies.response.empty()) json += "," + content(bodies.response_type, bodies.response);
  json += "},\"default\":{\"description\":\"an error\"," + content("application/json", "Error") + "}}}";
}

}  // namespace

std::string openapi_json(std::string_view server_version) {
  std::string json = "{\"openapi\":\"3.0.3\",\"info\":{\"title\":\"Flywheel inference server\",\"version\":";
  config::append_json_string(json, server_version);
  json += "},\"paths\":{";
  bool first = true;
  for (const RouteInfo& route : routes()) {
    if (!first) json += ',';
    first = false;
    config::append_json_string(json, route.pattern);
    json += ":{";
    if (route.get) append_operation(json, route, false);
    if (route.get && route.post) json += ',';
    if (route.post) append_operation(json, route, true);
    json += '}';
  }
  json += "},\"components\":{\"schemas\":";
  for (char c : kSchemas) {
    if (c != '\n') json += c;
  }
  return json + "}}";
}

}  // namespace flywheel::http
