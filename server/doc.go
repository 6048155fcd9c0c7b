// Package server is the HTTP layer: the LangGraph Server API on Fiber. It decodes requests and encodes answers with package compat,
// calls services, and writes streams. It knows HTTP and has no rules of its own.
//
// Every route is in a file named after its resource. Only errors.go maps faults to statuses. Only stream.go writes open responses: event
// streams, and waits, which send line ends as heartbeats until their JSON is complete.
//
// Three properties of fasthttp shape the code. Its strings point into buffers that the next request reuses, so the app is made with
// Immutable and nothing keeps a *fiber.Ctx after its handler. Its context does not end when a client leaves, so open responses watch the
// connection. In its streaming mode it leaves unread bodies on the connection, where they would be parsed as the next request, so the
// outermost handler reads them or closes the connection.
package server
