// Package server is the HTTP face: the LangGraph Server API on Fiber. It decodes requests and encodes answers with package compat, asks
// services, and writes streams. It knows HTTP and decides nothing.
//
// Every route stands in a file named for its resource. errors.go alone knows which status a fault has. stream.go is the only writer of
// open responses: event streams, and waits, which send a line end now and then until their JSON is there.
//
// Three habits of fasthttp shape the code. Its strings point into buffers that the next request reuses, so the app is made with
// Immutable and nothing keeps a *fiber.Ctx after its handler. Its context does not end when a client leaves, so open responses watch the
// connection. And in its streaming mode it leaves unread bodies on the wire, where they would pass for the next request, so the
// outermost handler reads them or closes the connection.
package server
