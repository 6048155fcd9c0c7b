// Package proxy stands in front of a LangGraph Server: it forwards every call as it came, and hands the answers that carry the state of
// threads to a Recorder, which gives back full messages where the server has only a summary left. It owns the wire between client and
// upstream (paths, headers, bodies, event streams, failures), and knows nothing of messages: what they mean is behind Recorder.
//
// What is not understood passes untouched: unknown routes, WebSocket, the event-streaming protocol, MCP, A2A, answers that are
// no JSON, too long, or cut. A failure of recording never breaks a call.
//
// It is built on net/http and its ReverseProxy, while package server is built on Fiber: fasthttp does not tell a handler that its client
// has left, and cannot tunnel an upgraded connection, and a proxy has to do both at once.
//
// The connection to the upstream is HTTP/1.1, which upgrades need. Host is the client's on http, so that absolute addresses in answers
// lead back here, and the upstream's own on https, where names and certificates are bound to it; Config.Host decides otherwise. Forwarded
// headers (Forwarded, X-Forwarded-…) pass as they came, none is added: the upstream sees what it would see without the proxy,
// but for the address of the connection.
package proxy
