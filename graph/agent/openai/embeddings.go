package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/tidwall/gjson"

	"understudy/graph/agent/internal/wire"
	"understudy/graph/agent/llm"
)

// Embeddings is a model behind an embeddings endpoint. It is safe for concurrent use.
type Embeddings struct {
	model string
	dims  int
	wire  *wire.Client
}

// NewEmbeddings checks the options. It connects to nothing. dims is requested from models that offer a choice; others ignore it.
func NewEmbeddings(o Options, dims int) (*Embeddings, error) {
	o.BaseURL = cmp.Or(o.BaseURL, DefaultBaseURL)
	address, err := o.endpoint("embeddings")
	if err != nil {
		return nil, err
	}
	header := o.headers()
	header.Set("Accept", "application/json")
	return &Embeddings{model: o.Model, dims: dims, wire: wire.New(wire.Options{
		URL: address, Model: o.Model, Header: header, Secrets: []string{o.Key}, Explain: explain,
		Timeout: o.Timeout, Idle: o.Idle, Retries: o.Retries, MaxWait: o.MaxWait, MaxEvent: o.MaxEvent, MaxBody: o.MaxBody, Transport: o.Transport, Log: o.Log,
	})}, nil
}

// callTexts is how many texts a request has: the least that providers allow (Gemini).
const callTexts = 100

// Embed returns a vector for each text, in order. Errors are those of Client.StreamChunks.
func (e *Embeddings) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, 0, len(texts))
	for len(texts) > 0 {
		n := min(len(texts), callTexts)
		vectors, err := e.embed(ctx, texts[:n])
		if err != nil {
			return nil, err
		}
		out, texts = append(out, vectors...), texts[n:]
	}
	return out, nil
}

func (e *Embeddings) embed(ctx context.Context, texts []string) ([][]float32, error) {
	request := struct {
		Model      string   `json:"model"`
		Input      []string `json:"input"`
		Dimensions int      `json:"dimensions,omitempty"`
	}{Model: e.model, Input: make([]string, len(texts))}
	for i, text := range texts {
		request.Input[i] = cmp.Or(text, " ") // OpenAI refuses empty text
	}
	if strings.HasPrefix(e.model[strings.LastIndexByte(e.model, '/')+1:], "text-embedding-3") {
		request.Dimensions = e.dims
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	var last *embeddingsDecoder
	decoder := func() wire.Decoder {
		last = &embeddingsDecoder{want: len(texts)}
		return last
	}
	for _, err := range e.wire.StreamTo(ctx, body, decoder) {
		if err != nil {
			return nil, err
		}
	}
	return last.vectors, nil
}

// embeddingsDecoder reads {"data": [{"index": 0, "embedding": [0.1, …] or base64 of little-endian float32}, …]}.
type embeddingsDecoder struct {
	want    int
	vectors [][]float32
}

// Event refuses events: vectors come in one piece.
func (d *embeddingsDecoder) Event(string, []byte) (llm.Chunk, bool, error) {
	return llm.Chunk{}, false, &llm.Error{Status: 200, Message: "the server sent events in place of vectors"}
}

// Whole reads the answer.
func (d *embeddingsDecoder) Whole(data []byte) (llm.Chunk, error) {
	in := gjson.ParseBytes(data)
	e := &llm.Error{Status: 200}
	list := in.Get("data")
	if !list.IsArray() {
		if fill(in, e) {
			return llm.Chunk{}, e
		}
		e.Message = "the answer has no list of vectors in data"
		return llm.Chunk{}, e
	}
	vectors := make([][]float32, d.want)
	n := 0
	var err error
	list.ForEach(func(_, item gjson.Result) bool {
		at := n
		if index := item.Get("index"); index.Exists() {
			at = int(index.Int())
		}
		if n++; at < 0 || at >= len(vectors) || vectors[at] != nil {
			err = fmt.Errorf("the answer has a vector for text %d of %d, or two", at, d.want)
			return false
		}
		vectors[at], err = vectorOf(item.Get("embedding"))
		return err == nil
	})
	if err == nil && n != d.want {
		err = fmt.Errorf("the answer has %d vectors for %d texts", n, d.want)
	}
	if err != nil {
		e.Message = err.Error()
		return llm.Chunk{}, e
	}
	d.vectors = vectors
	return llm.Chunk{}, nil
}

func vectorOf(v gjson.Result) ([]float32, error) {
	out := []float32{}
	switch {
	case v.IsArray():
		for number := range bytes.SplitSeq([]byte(strings.Trim(v.Raw, "[]")), []byte(",")) {
			n := gjson.ParseBytes(bytes.TrimSpace(number))
			if n.Type != gjson.Number {
				return nil, fmt.Errorf("a vector has %.20s in place of a number", number)
			}
			out = append(out, float32(n.Num))
		}
	case v.Type == gjson.String:
		b, err := base64.StdEncoding.DecodeString(v.Str)
		if err != nil || len(b)%4 != 0 {
			return nil, fmt.Errorf("a vector is text that is not base64 of float32")
		}
		for ; len(b) > 0; b = b[4:] {
			out = append(out, math.Float32frombits(uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16|uint32(b[3])<<24))
		}
	default:
		return nil, fmt.Errorf("a vector is missing")
	}
	return out, nil
}

// Complete reports whether the vectors have come.
func (d *embeddingsDecoder) Complete() bool { return d.vectors != nil }

// Ended is Complete: nothing follows.
func (d *embeddingsDecoder) Ended() bool { return d.vectors != nil }

// Last returns nothing.
func (d *embeddingsDecoder) Last() (llm.Chunk, bool) { return llm.Chunk{}, false }
