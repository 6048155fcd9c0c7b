// Package compat holds the wire formats of the LangGraph Server API: the form of request bodies, the exact bytes of answers, and the frames of its
// event streams. It does no I/O and has no rules of its own.
//
// Decoders turn the bytes of a client into domain types. They begin with [Prepare], which refuses invalid JSON and compacts the rest, and check the
// body against a [Schema]; the same schemas are printed in the OpenAPI description. Payloads (state values, metadata, messages) stay bytes: nothing
// below the fields that a decision needs is ever decoded, so numbers keep their digits and keys their order.
//
// Decoded values share memory with the body, so the caller must not modify the body after decoding.
//
// Encoders append to a buffer and splice payloads unchanged. They trust stored JSON to be compact and valid.
//
// Errors are faults whose text a client may see. Malformed identifiers and bodies are fault.Unprocessable.
package compat
