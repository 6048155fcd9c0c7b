// Package jsonplus turns values that LangGraph's JsonPlusSerializer stored into the JSON that clients of LangGraph Server see.
//
// It reads the msgpack with extension codes 0 to 7 that graphs write today, and the older `json` form. Bytes go in and bytes
// come out: no value is built in between. Nothing is ever imported, constructed or unpickled: an object shows as what was
// stored of it. Where streams and state of LangGraph Server differ (dates, times, durations, decimals, paths), the form of
// the streams is used.
//
// The other way round, AppendValue, AppendState and AppendMessage write JSON as the msgpack that the serializer would have written,
// messages as objects of their classes.
package jsonplus
