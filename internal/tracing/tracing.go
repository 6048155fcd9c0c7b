// Package tracing sends spans where the standard variables of OpenTelemetry say, by OTLP over HTTP.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// FromEnv makes a provider when the environment asks for one: OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT names a collector, or
// OTEL_TRACES_EXPORTER is otlp. services returns the variables of LangSmith and Langfuse, which get the same spans; nil: they get none. Without a destination the provider
// is nil. Shut the provider down: it sends what waits. Spans wait in bounded queues; beyond that they are dropped. An error says what cannot be done; then there is no
// provider, or it sends to the others.
func FromEnv(ctx context.Context, version string, services func(string) string) (*sdk.TracerProvider, error) {
	clients, wrong := clientsOf(os.Getenv, services)
	if len(clients) == 0 {
		return nil, wrong
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "understudy"), attribute.String("service.version", version)),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv()) // which may name the service otherwise
	if err != nil {
		return nil, errors.Join(wrong, fmt.Errorf("traces: %w", err))
	}
	exporters := make([]*otlptrace.Exporter, len(clients))
	for i, c := range clients {
		if exporters[i], err = otlptrace.New(ctx, c); err != nil {
			return nil, errors.Join(wrong, fmt.Errorf("traces: %w", err))
		}
	}
	options := []sdk.TracerProviderOption{sdk.WithResource(about)}
	for _, e := range exporters {
		options = append(options, sdk.WithBatcher(e)) // starts a goroutine, which only the provider ends: no error may follow
	}
	return sdk.NewTracerProvider(options...), wrong
}

// clientsOf returns what sends spans: to the collector of the standard variables, and to services that their own variables switch on; nil: none.
func clientsOf(getenv, services func(string) string) (clients []*client, wrong error) {
	if strings.EqualFold(strings.TrimSpace(getenv("OTEL_SDK_DISABLED")), "true") {
		return nil, nil
	}
	on, wrong := wanted(getenv)
	if on {
		c, err := newClient(getenv)
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("traces: %w", err))
		} else {
			clients = append(clients, c)
		}
	}
	if services != nil {
		for _, service := range []func(env) (*client, error){langSmith, langfuse} {
			c, err := service(services)
			if err != nil {
				wrong = errors.Join(wrong, fmt.Errorf("traces: %w", err))
			} else if c != nil {
				clients = append(clients, c)
			}
		}
	}
	return clients, wrong
}

// wanted reports whether traces are enabled, by OpenTelemetry's standard variables.
func wanted(getenv func(string) string) (bool, error) {
	first := env(getenv).first
	if strings.EqualFold(first("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	exporter := first("OTEL_TRACES_EXPORTER")
	switch exporter {
	case "":
		if first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
			return false, nil
		}
	case "none":
		return false, nil
	case "otlp":
	default:
		return false, fmt.Errorf("traces: OTEL_TRACES_EXPORTER is %q; write otlp or none", exporter)
	}
	if p := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/protobuf" {
		return false, fmt.Errorf("traces: the OTLP protocol is %q; this server supports http/protobuf, usually on port 4318", p)
	}
	return true, nil
}
