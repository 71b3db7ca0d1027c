// SPDX-License-Identifier: Apache-2.0
// The least that an HTTP server can do: one thread, epoll, a body counted and a fixed answer. What a machine's sockets
// give at most, for server_limits.py to compare with. Not a server: it believes whatever it is sent.
//
//   bare_http PORT     until it is killed
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::string_view kAnswer =
    "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 64\r\n\r\n"
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
constexpr size_t kBufferBytes = 1 << 20;

struct Client {
  explicit Client(int accepted) : socket(accepted), buffer(kBufferBytes) {}
  int socket;
  std::vector<char> buffer;
  size_t filled = 0;
};

void watch(int epoll, int socket, void* tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = tag;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event);
}

// Answers the whole requests at the front of the buffer.
void answer(Client& client) {
  constexpr std::string_view kLength = "Content-Length: ";
  std::string_view rest(client.buffer.data(), client.filled);
  for (;;) {
    const size_t head_end = rest.find("\r\n\r\n");
    if (head_end == std::string_view::npos) break;
    const size_t field = rest.substr(0, head_end).find(kLength);
    const size_t body =
        field == std::string_view::npos ? 0 : std::strtoul(rest.data() + field + kLength.size(), nullptr, 10);
    if (rest.size() < head_end + 4 + body) break;
    rest.remove_prefix(head_end + 4 + body);
    if (::send(client.socket, kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL) < 0) break;
  }
  std::char_traits<char>::move(client.buffer.data(), rest.data(), rest.size());
  client.filled = rest.size();
}

// False when the client has gone.
bool receive(Client& client) {
  for (;;) {
    const size_t room = client.buffer.size() - client.filled;
    const ssize_t got = ::recv(client.socket, client.buffer.data() + client.filled, room, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    client.filled += static_cast<size_t>(got);
    answer(client);
    if (static_cast<size_t>(got) < room) return true;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[1])));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1, listening = ::socket(AF_INET, SOCK_STREAM, 0), epoll = ::epoll_create1(0);
  ::setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(listening, 1024) != 0)
    return 1;
  watch(epoll, listening, nullptr);
  epoll_event events[256];
  for (;;) {
    const int count = ::epoll_wait(epoll, events, 256, -1);
    for (int i = 0; i < count; ++i) {
      if (auto* client = static_cast<Client*>(events[i].data.ptr)) {
        if (receive(*client)) continue;
        ::close(client->socket);
        delete client;
      } else if (const int socket = ::accept(listening, nullptr, nullptr); socket >= 0) {
        ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(epoll, socket, new Client(socket));
      }
    }
  }
}
