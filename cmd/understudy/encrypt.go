package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"understudy/internal/app/moving"
)

func newEncrypt() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "encrypt",
		Short: "Encrypt a database, or change its key",
		Long: `Encrypts the content of the data folder, or of the database of --database-url, by the handlers of encryption.path in langgraph.json, or
with the first key in LANGGRAPH_AES_KEY: what was written before there
was a key, and what has an older one. The data folder must have no server; on Postgres servers may run, with the same keys.

To change the key, set LANGGRAPH_AES_KEY to "new,old" for all servers, run this command, and remove the old one. It may be interrupted,
and run again.`,
		Example: `  export LANGGRAPH_AES_KEY=$(openssl rand -hex 16)
  understudy encrypt
  LANGGRAPH_AES_KEY=new…,old… understudy encrypt --rotate`,
		Args: noArgs,
	}
	cmd.Flags().SortFlags = false
	load := dataFlags(cmd)
	rotate := cmd.Flags().Bool("rotate", false, "require an older key behind the new one")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _, err := load()
		if err != nil {
			return err
		}
		if *rotate && cfg.Encrypts() {
			return misused(cmd, "--rotate is for LANGGRAPH_AES_KEY; with encryption.path let the decrypt handler return a DecryptResult with the replacement, and restart the servers")
		}
		if *rotate && len(cfg.Storage.Keys) < 2 {
			return misused(cmd, "--rotate needs two keys, the new one and the one from before: LANGGRAPH_AES_KEY=new,old")
		}
		log := newLog(cfg, cmd.ErrOrStderr())
		ctx, stop := untilSignal(cmd.Context(), log)
		defer stop()
		working := waitSign(cmd.ErrOrStderr(), "encrypting "+place(cfg))
		changed, err := moving.Encrypt(ctx, cfg, log)
		working()
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%d values encrypted; the rest already was\n", changed)
		return nil
	}
	return cmd
}
