// Package compat holds the wire formats of the LangGraph Server API: what request bodies must look like, what answers look like byte by
// byte, and the frames of its event streams. It does no I/O and decides nothing.
//
// Decoders take the bytes of a client and give domain types. They begin with [Prepare], which refuses what is not JSON and makes the rest
// compact, and check the body against a [Schema]; the same schemas are printed in the OpenAPI description. Payloads (state values,
// metadata, messages) stay bytes: nothing below the fields that a decision needs is ever decoded, so numbers keep their digits and keys their order.
//
// Decoded values share memory with the body. Who decodes must leave the body alone afterwards.
//
// Encoders append to a buffer and splice payloads as they are. They trust stored JSON to be compact and valid.
//
// Errors are faults whose text a client may see. Malformed identifiers and bodies are fault.Unprocessable.
package compat
