// Package message holds the messages of chat models as LangChain lays them out: their JSON is what the API shows and what
// checkpoints store, with the same fields in the same order. It reads what clients send in their place (a role and a content, a
// pair, a bare string), and adds the chunks of a streamed message up to the whole one. It calls no model.
//
// A Message is a plain value. Its slices and raw JSON are shared when it is copied: change a copy by setting its fields, never
// the bytes or items behind them.
package message
