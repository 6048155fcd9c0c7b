package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"understudy/graph/agent/llm"
	"understudy/graph/agent/openai"
)

// embedding are providers of embedding models. All speak OpenAI's wire.
var embedding = map[string]service{
	"openai":       services["openai"],
	"azure_openai": services["azure_openai"],
	"googleai":     services["googleai"],
	"google_genai": services["google_genai"],
	"ollama":       services["ollama"],
	"mistralai":    services["mistralai"],
	"openrouter":   services["openrouter"],
	"voyageai":     {"voyageai", "https://api.voyageai.com/v1", []string{"VOYAGE_API_KEY"}, false, openai.Quirks{}, "", nil},
	"together":     {"together", "https://api.together.xyz/v1", []string{"TOGETHER_API_KEY"}, false, openai.Quirks{}, "", nil},
}

// EmbeddingNames returns the providers of embedding models.
func EmbeddingNames() []string { return slices.Sorted(maps.Keys(embedding)) }

// Embeds reports whether a provider is known for embedding models.
func Embeds(name string) bool {
	_, known := embedding[name]
	return known
}

// Embeddings is a model of a provider. It is safe for concurrent use.
type Embeddings struct {
	Source llm.Source
	client *openai.Embeddings
}

// Embed returns a vector for each text, in order. Errors say what to do: *llm.CallError.
func (e *Embeddings) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	vectors, err := e.client.Embed(ctx, texts)
	if err != nil && ctx.Err() == nil {
		err = &llm.CallError{Source: e.Source, Err: err}
	}
	return vectors, err
}

// azure sets the address of a deployment as LangChain's package does, which has the name of the model.
func (s *Spec) azure(from *llm.Source, model string) {
	endpoint := strings.TrimSpace(s.Getenv("AZURE_OPENAI_ENDPOINT"))
	if s.BaseURL != "" || endpoint == "" {
		return
	}
	s.BaseURL, from.Base = strings.TrimRight(endpoint, "/")+"/openai/deployments/"+url.PathEscape(model), "AZURE_OPENAI_ENDPOINT"
	if version := strings.TrimSpace(s.Getenv("OPENAI_API_VERSION")); version != "" {
		s.Query = map[string]string{"api-version": version}
	}
}

// OpenEmbeddings makes an embedding model with so many dimensions. It connects to nothing. Of the specification it uses name, key, address,
// headers, query, times and retries.
func OpenEmbeddings(s Spec, dims int) (*Embeddings, error) {
	if s.Getenv == nil {
		s.Getenv = os.Getenv
	}
	from := llm.Source{Name: s.Name, Place: s.Place}
	fail := func(err error) (*Embeddings, error) {
		return nil, fmt.Errorf("embedding %s: %w", s.Name, err)
	}
	provider, model, ok := strings.Cut(s.Name, ":")
	svc, known := embedding[provider]
	switch {
	case !ok:
		return fail(fmt.Errorf(`write provider:model, such as "openai:text-embedding-3-small"; providers are %s`, strings.Join(EmbeddingNames(), ", ")))
	case !known:
		return fail(fmt.Errorf("there is no provider %q%s; providers are %s", provider, meant(provider), strings.Join(EmbeddingNames(), ", ")))
	case model == "":
		return fail(errors.New("has no model name after the colon"))
	}
	if err := errors.Join(colonAtEnd(provider, model), s.checkHeaders()); err != nil {
		return fail(err)
	}
	if svc.name == "azure" {
		s.azure(&from, model)
	}
	s.fromVariable(&from, svc.address...)
	key, err := s.key(&from, svc.optional, svc.key...)
	if err != nil {
		return fail(err)
	}
	base := cmp.Or(s.BaseURL, svc.base)
	if base == "" {
		return fail(errors.New("needs the address of your resource; set AZURE_OPENAI_ENDPOINT"))
	}
	header, query := s.sent()
	client, err := openai.NewEmbeddings(openai.Options{
		Model: model, Key: key, KeyHeader: cmp.Or(s.KeyHeader, svc.header), BaseURL: base, Organization: s.Organization, Project: s.Project, Header: header, Query: query,
		Timeout: s.Timeout, Idle: s.IdleTimeout, Retries: s.retries(), Log: s.Log,
	}, dims)
	if err != nil {
		if from.Base != "" {
			err = fmt.Errorf("%s: %w", from.Base, err)
		}
		return fail(err)
	}
	return &Embeddings{from, client}, nil
}
