// Package proxy stands in front of a LangGraph Server: it forwards every call unchanged, and passes the answers that contain the state of
// threads to a Recorder, which restores full messages where the server has only a summary left. It owns the wire between client and
// upstream (paths, headers, bodies, event streams, failures), and does not interpret messages: Recorder does.
//
// Everything else passes unchanged: unknown routes, WebSocket, the event-streaming protocol, MCP, A2A, and answers that are not JSON, too
// long, or cut. A failure of recording never breaks a call.
//
// It is built on net/http and its ReverseProxy, while package server is built on Fiber: fasthttp does not notify a handler that its
// client has left, and cannot tunnel an upgraded connection, and a proxy has to do both at once.
//
// The connection to the upstream is HTTP/1.1, which upgrades need. Host is the client's on http, so that absolute addresses in answers
// lead back to the proxy, and the upstream's own on https, where virtual hosts and certificates require it; Config.Host decides
// otherwise. Forwarded headers (Forwarded, X-Forwarded-…) pass unchanged, and none is added: the upstream sees the same as without the
// proxy, except for the peer address of the connection.
package proxy
