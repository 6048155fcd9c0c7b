// Package web is what all routes of a server share: bodies of requests, answers, lists, streams and WebSockets, within limits on memory and connections;
// metrics, spans and log lines of requests; and the errors that are answers. It knows no service.
package web
