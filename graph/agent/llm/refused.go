package llm

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/tmc/langchaingo/llms"
)

// refusals are words of errors about content that a model cannot read, in addition to noImages.
var refusals = []string{
	"image", "audio", "video", "pdf", "document", "file", "media type", "media_type", "mime", "content type", "content part", "content block", "unknown variant", "input tag",
}

// refusesContent reports whether a provider refuses content: images of a model that reads text alone, a file that it cannot open.
func refusesContent(err error) bool {
	var e *Error
	if !errors.As(err, &e) || !slices.Contains([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}, e.Status) {
		return false
	}
	text := strings.ToLower(e.Code + " " + e.Type + " " + e.Param + " " + e.Message)
	contains := func(word string) bool { return strings.Contains(text, word) }
	return slices.ContainsFunc(refusals, contains) || slices.ContainsFunc(noImages, contains)
}

// WithoutRefused streams an answer. If the provider refuses content, and older messages have data, it asks again with texts in place of these:
// an image or file that this model cannot read would make all further runs of its thread fail.
func WithoutRefused(ctx context.Context, log *slog.Logger, model string, messages []llms.MessageContent, stream func([]llms.MessageContent) iter.Seq2[Chunk, error]) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		begun := false
		for c, err := range stream(messages) {
			if err != nil && !begun && ctx.Err() == nil && refusesContent(err) {
				if less, ok := withoutOld(messages); ok {
					cmp.Or(log, slog.Default()).WarnContext(ctx, "model refused content; asking again without that of older messages", "model", model, "error", err)
					stream(less)(yield)
					return
				}
			}
			begun = true
			if !yield(c, err) {
				return
			}
		}
	}
}

// withoutOld returns messages with texts in place of data, except in the message that was just sent. ok is false if there is none.
func withoutOld(messages []llms.MessageContent) (out []llms.MessageContent, ok bool) {
	out = slices.Clone(messages)
	for i := range out {
		parts, replaced := textsInstead(out[i].Parts)
		out[i].Parts, ok = parts, ok || replaced
	}
	return out, ok
}

func textsInstead(parts []llms.ContentPart) (out []llms.ContentPart, ok bool) {
	out = slices.Clone(parts)
	for i, part := range out {
		p, rich := part.(Part)
		if !rich {
			continue
		}
		switch p.ContentPart.(type) {
		case llms.ToolCallResponse:
			content, replaced := textsInstead(p.Content)
			if replaced {
				p.Content = content
				out[i], ok = p, true
			}
		case llms.ImageURLContent, llms.BinaryContent, nil:
			if p.Instead != "" {
				out[i], ok = llms.TextContent{Text: p.Instead}, true
			}
		}
	}
	return out, ok
}
