"""What tests share: made-up records, fakes of machines and libraries, simulated worlds, the command in a process."""
