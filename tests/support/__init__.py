"""What several test files share: small studies, sites, consortia, and the processes of a real one."""
