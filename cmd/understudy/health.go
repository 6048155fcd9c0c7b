package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// newHealth is for images that have nothing else that could ask.
func newHealth() *cobra.Command {
	address := "http://127.0.0.1:2024"
	if port := os.Getenv("UNDERSTUDY_PORT"); port != "" {
		address = "http://127.0.0.1:" + port
	}
	timeout := 3 * time.Second
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a server whether it is ready",
		Long: `Asks /readyz of a server on this machine, prints the answer, and ends with exit code 1 when it
is not ready or does not answer. It is what the health check of a container runs.`,
		Example: `  understudy health --url http://127.0.0.1:8123`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return askReady(ctx, address, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&address, "url", address, "`URL` of the server [$UNDERSTUDY_PORT]")
	cmd.Flags().DurationVar(&timeout, "timeout", timeout, "`DURATION` that the answer may take")
	return cmd
}

func askReady(ctx context.Context, address string, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/readyz", nil)
	if err != nil {
		return usageError{err}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(out, io.LimitReader(res.Body, 4<<10)); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if res.StatusCode != http.StatusOK {
		return errors.New("the server is not ready")
	}
	return nil
}
