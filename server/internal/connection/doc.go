// Package connection has what a server needs of connections and fasthttp does not do: accepting when files are short, noticing that a client has left,
// and ending quickly at a shutdown.
package connection
