"""What the written pages use: figures in prose, their quantities, the glossary, the chapters' helpers."""
